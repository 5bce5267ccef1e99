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


def test_there_are_forty():
    assert len({fault.before for fault in mutation.FAULTS}) == 40
