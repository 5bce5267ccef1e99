"""Shows the files of the root as pages: they are written once, and their links to each other hold."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README (as the first page), CONTRIBUTING, CHANGELOG and what they link to."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files
