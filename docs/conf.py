"""How Sphinx builds the documentation: `make docs`. Every warning is an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tools.sphinx_pages

project = "linfdist"
copyright = "linfdist contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "tools.sphinx_pages"]
exclude_patterns = ["_static"]

html_theme = "furo"
html_title = "linfdist"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # summaries are requests for pages, which browsers refuse to pages opened as files
html_math_renderer = "mathml"  # of tools.sphinx_pages: no script from another host
html_theme_options = {"top_of_page_buttons": []}

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # torch's are written for its own pages
autodoc_default_options = {"members": True, "imported-members": True}
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = True
