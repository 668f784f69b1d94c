"""Hooks of mkdocs (mkdocs.yml): pages that lie outside of docs join the site, and search works from disk.

A link to a file of the tree that is no page (`examples/..`, a header) becomes its text, because the site is built without
the sources.
"""
import json
import posixpath
import re

from mkdocs.structure.files import File

# Pages of the root, by their place in the site.
PAGES = {"README.md": "project/readme.md", "ARCHITECTURE.md": "project/architecture.md",
         "CONTRIBUTING.md": "project/contributing.md", "python/README.md": "project/python.md",
         "tests/README.md": "project/tests.md"}
PLACES = {place: page for page, place in PAGES.items()}
ASSETS = (".svg", ".sh", ".yml")
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def slug(heading, separator):
    """The anchors that GitHub makes of headings, so that one link serves both."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]+>|[`*]", "", heading).lower(), flags=re.ASCII)
    return kept.strip().replace(" ", separator)


def on_config(config):
    config.mdx_configs["toc"] = {"slugify": slug, "permalink": True}
    return config


def on_files(files, config):
    root = posixpath.dirname(config.config_file_path)
    for page, place in PAGES.items():
        with open(posixpath.join(root, page), encoding="utf-8") as file:
            files.append(File.generated(config, place, content=file.read()))
    return files


def on_page_markdown(markdown, page, config, files):
    place = page.file.src_uri
    was = posixpath.dirname(PLACES.get(place, posixpath.join("docs", place)))
    now = posixpath.dirname(place)

    def linked(match):
        target, anchor = match[1], match[2] or ""
        if "://" in target or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(was, target))
        if path in PAGES:
            path = PAGES[path]
        elif path.startswith("docs/") and files.get_file_from_path(path[len("docs/"):]):
            path = path[len("docs/"):]
        else:
            return "]()"
        return f"]({posixpath.relpath(path, now or '.')}{anchor})"

    return re.sub(r"\[([^\]\n]*)\]\(\)", r"\1", LINK.sub(linked, markdown))


def on_post_build(config):
    """A page from disk may not fetch the index of the search: there it is read as a script, in the page's own thread."""
    folder = posixpath.join(config.site_dir, "search")
    with open(posixpath.join(folder, "search_index.json"), encoding="utf-8") as file:
        index = file.read()
    with open(posixpath.join(folder, "search_index.js"), "w", encoding="utf-8") as file:
        file.write(f"window.searchIndex = {json.dumps(index)};\n")
    main = posixpath.join(folder, "main.js")
    with open(main, encoding="utf-8") as file:
        script = file.read()
    worker = "if (!window.Worker) {"
    if script.count(worker) != 2:
        raise SystemExit("docs/site.py: mkdocs' search/main.js has changed; search would not work from disk")
    from_disk = """if (location.protocol === 'file:') {
  window.Worker = undefined;
  var loadFromDisk = function (name, then) {
    var script = document.createElement('script');
    script.src = joinUrl(base_url, 'search/' + name);
    script.onload = then;
    document.head.appendChild(script);
  };
  loadFromDisk('search_index.js', function () {
    loadFromDisk('worker.js', function () {
      window.getScript = loadFromDisk;
      window.postMessage = function (message) { onWorkerMessage({data: message}); };
      onJSONLoaded.call({responseText: window.searchIndex});
    });
  });
} else """
    at = script.rindex(worker)
    with open(main, "w", encoding="utf-8") as file:
        file.write(script[:at] + from_disk + script[at:])
