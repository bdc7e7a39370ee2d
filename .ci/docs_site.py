"""What the site of the documentation needs beyond mkdocs: pages that lie outside of docs, and links that lead to them.

On GitHub a page links to files by their place in the repository. In the site, pages of docs stand at the top, and the
others below their own path; links are rewritten to that. Links to files that are no pages become the files' names.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    *(f"example_projects/{name}" for name in ("README.md", "*/README.md", "**/*.png", "**/*.svg")),
)
FRONT = "overview.md"  # README of the repository; that of docs is the index
FENCED = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name every example project in the navigation; the benchmark has a place of its own there."""
    how_to = next(part["How to"] for part in config.nav or [] if "How to" in part)
    found = sorted(ROOT.glob("example_projects/README.md")) + sorted(ROOT.glob("example_projects/*/README.md"))
    pages = [path.relative_to(ROOT).as_posix() for path in found]
    examples = next(part for part in how_to if "Examples" in part)
    examples["Examples"] = [page for page in pages if "/benchmark/" not in page]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and their images, that lie outside of docs."""
    files.append(File.generated(config, FRONT, abs_src_path=str(ROOT / "README.md")))
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if "/." in name:  # what an example has left behind
                continue
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Rewrite links between files of the repository to links between pages of the site."""
    uri = page.file.src_uri
    place = "README.md" if uri == FRONT else uri if page.file.generated_by else f"docs/{uri}"

    def rewrite(found: re.Match[str]) -> str:
        image, text, path, anchor = found[1], found[2], found[3], found[4] or ""
        at = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        target = FRONT if at == "README.md" else at.removeprefix("docs/")
        if not files.get_file_from_path(target) and (ROOT / at).exists():
            return text if text.startswith("`") else f"{text} (`{at}`)"
        return f"{image}[{text}]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{anchor})"

    parts = FENCED.split(markdown)
    return "".join(part if FENCED.fullmatch(part) else LINK.sub(rewrite, part) for part in parts)
