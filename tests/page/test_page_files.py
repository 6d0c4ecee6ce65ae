"""The document names every module that the first view needs, so that all of them load in one round."""

from __future__ import annotations

import json
import re
from pathlib import Path

from spotwright.page.page_files import PageFiles

FILES = {
    "app.js": 'import {a} from "./views/a.js";\nimport { html } from "two";\nconst later = () => import("./later.js");\n',
    "views/a.js": 'export {a} from "../parts/b.js"\n',
    "parts/b.js": 'import "../app.js";\n',
    "later.js": "",
    "vendor/one.js": "",
    "vendor/two.js": 'import{a as b}from"one";export{c}from"three";import d from"four";const e=";";export{e};',
    "vendor/three.js": "",
    "vendor/four.js": "",
    "vendor/five.js": "",
    "index.html": "{preloads}{import_map}",
}


def test_modules_are_named_through_all_imports_also_several_in_a_line(tmp_path: Path) -> None:
    names = ("one", "two", "three", "four", "five")
    table = {name: {"file": f"{name}.js"} for name in names}
    for name, content in (FILES | {"vendor.json": json.dumps(table)}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")

    html = PageFiles(tmp_path).document(0).html.decode()

    named = re.findall(r'modulepreload" href="\./assets/[0-9a-f]+/([^"]+)"', html)
    first = [
        "app.js",
        "parts/b.js",
        "vendor/four.js",
        "vendor/one.js",
        "vendor/three.js",
        "vendor/two.js",
        "views/a.js",
    ]
    assert sorted(named) == first
    assert set(json.loads(html[html.index("{") :])["imports"]) == set(names)
