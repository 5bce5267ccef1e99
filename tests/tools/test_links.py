"""Every kind of broken link is found, and a good site passes."""

import pytest

from tools.links import broken, main


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a b.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="sub/page.html#here">1</a><a href="#top">2</a><img src="a%20b.png">'
        '<a href="https://example.org/none">3</a><a href="mailto:a@b">4</a><link href="a%20b.png?v=1">'
    )
    (tmp_path / "sub" / "page.html").write_text('<p id="here"></p><a href="../index.html">back</a><a name="old"></a>')
    return tmp_path


def test_a_good_site(site, capsys):
    assert list(broken(site)) == []
    assert main([str(site)]) == 0
    assert "all internal links" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ('<a href="none.html">', "none.html leads to no file of the site"),
        ('<img src="none.png">', "none.png leads to no file of the site"),
        ('<script src="sub/none.js"></script>', "sub/none.js leads to no file"),
        ('<a href="sub/page.html#gone">', "sub/page.html#gone leads to no such place on that page"),
        ('<a href="#gone">', "#gone leads to no such place"),
        ('<a href="/index.html">', "/index.html does not work from the file system"),
        ('<a href="file:///index.html">', "does not work from the file system"),
        ('<a href="sub/">', "sub/ is a folder"),
        ('<a href="../outside.html">', "../outside.html leads to no file of the site"),
    ],
)
def test_a_broken_link_is_named(site, capsys, html, said):
    (site.parent / "outside.html").write_text("")
    (site / "new.html").write_text(html)
    assert main([str(site)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: 1 broken links\nnew.html: ")
    assert said in error


def test_a_site_that_was_not_built(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "holds no pages: build them first" in capsys.readouterr().err
