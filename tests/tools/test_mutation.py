"""The faults of tools/mutation.py keep to the source: each has its place in it, and its tests exist."""

import pytest

from tools import mutation


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return mutation.Copy(tmp_path_factory.mktemp("copy"))


@pytest.mark.parametrize("fault", mutation.FAULTS, ids=lambda fault: fault.what)
def test_a_fault_has_one_place(package, fault):
    mutation.check(package, [fault])
    assert fault.before not in package.sources[package.place_of(fault)].replace(fault.before, fault.after)


def test_faults_that_are_drawn_are_faults(package):
    """Of every file of the core, each in one place, in a file that can still be compiled."""
    faults = mutation.drawn(package, 60, seed=1)
    assert faults == mutation.drawn(package, 60, seed=1) != mutation.drawn(package, 60, seed=2)
    assert {fault.what.split(":")[0] for fault in faults} == set(mutation.CORE)
    mutation.check(package, faults)
    for fault in faults:
        text = package.sources[package.place_of(fault)]
        assert fault.before != fault.after
        compile(text.replace(fault.before, fault.after), "core", "exec")


def test_there_are_forty():
    assert len({fault.before for fault in mutation.FAULTS}) == 40
