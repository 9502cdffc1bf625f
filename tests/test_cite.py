import re
import tomllib
from pathlib import Path

import pytest

import ordinate as od
from ordinate.cite import OURS, reference, references
from ordinate.cli.subject import made
from ordinate.methods import names

HOUSE = Path(__file__).parents[1]
VENUE = {
    "article": "journal",
    "inproceedings": "booktitle",
    "misc": "howpublished",
    "software": "version",
}


@pytest.mark.parametrize("name", names())
def test_every_paper_of_every_method_is_in_the_bibliography(name):
    for key in made(name, {"layers": 1}).facts.paper:
        assert reference(key).key == key
    assert od.bibtex(name).startswith("@")


@pytest.mark.parametrize("key", references())
def test_an_entry_is_complete(key):
    entry = references()[key]
    assert {"author", "title", "year", VENUE[entry.kind]} <= entry.fields.keys()
    assert {"url", "doi"} & entry.fields.keys() or key == OURS
    assert str(entry.year) in key
    assert entry.text.count("{") == entry.text.count("}")
    first = re.sub(r"[^a-z0-9]", "", entry.by.split()[0].lower())
    assert key.startswith(first) or key == OURS
    # What is not ours is named with its authors in full: "Surname, Given and ...".
    assert all("," in name or name == "bloc97" for name in entry.fields["author"].split(" and ")
               if key != OURS)  # fmt: skip
    # The fields are all there is between the first line and the last.
    assert len(entry.fields) == len(entry.text.splitlines()) - 2


def test_the_file_holds_nothing_but_entries():
    text = (HOUSE / "src/ordinate/references.bib").read_text()
    assert text.strip() == "\n\n".join(entry.text for entry in references().values())
    assert len(references()) == text.count("\n@") + 1


def test_every_entry_is_used():
    used = {key for name in names() for key in made(name, {"layers": 1}).facts.paper}
    assert references().keys() - used <= {OURS, "kazemnejad2023nope"}


def test_we_are_cited_as_we_ask_to_be():
    entry, asked = reference(OURS), (HOUSE / "CITATION.cff").read_text()
    assert od.bibtex() == entry.text
    assert f'\ntitle: "{entry.title}"\n' in asked
    assert f"\nversion: {entry.fields['version']}\n" in asked
    assert f"\nlicense: {entry.fields['license']}\n" in asked
    assert f'- name: "{entry.by}"' in asked
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    assert project["version"] == entry.fields["version"]


def test_a_chain_cites_all_of_its_parts_once():
    said = od.bibtex("rope:base=5+alibi", "rope", od.make("t5", heads=2), "kazemnejad2023nope")
    keys = re.findall(r"^@\w+\{(.*),$", said, re.M)
    assert keys == ["su2021roformer", "press2022alibi", "raffel2020t5", "kazemnejad2023nope"]


def test_a_wrapper_cites_what_it_wraps():
    assert set(re.findall(r"^@\w+\{(.*),$", od.bibtex("randomized(t5)"), re.M)) == {
        "ruoss2023randomized", "raffel2020t5",
    }  # fmt: skip


def test_short_names():
    assert reference("press2022alibi").by == "Press et al."
    assert reference("bloc972023ntk").by == "bloc97"
    assert reference("su2021roformer").title.startswith("RoFormer: Enhanced")


def test_a_wrong_key_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean press2022alibi"):
        reference("press2022alibi2")


def test_a_position_with_its_own_paper_says_what_to_do():
    class Mine(od.Position):
        facts = od.Facts(paper=("me2026mine",), relative=True)

    with pytest.raises(ValueError, match="no entry 'me2026mine'"):
        od.bibtex(Mine())
