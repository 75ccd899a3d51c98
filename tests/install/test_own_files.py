"""A file that is wholly ours: written, brought up to date and removed again; one of somebody else is never touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.agents.coding_agents import CLAUDE_CODE
from context_compactor.agents.install.files import write_all
from context_compactor.agents.install.plan import InstallRecords, plan_install, plan_uninstall
from context_compactor.agents.install.settings_files import UNKNOWN, OwnFile
from context_compactor.agents.install.targets import SettingsTarget
from context_compactor.errors import BadSetting

OURS = OwnFile("// Written by `compactor install`.\nexport default 1;\n", "extension")
THEIRS = "// mine\n\n\n// see compactor install\n"
NEWER = OwnFile("// Written by `compactor install`.\nexport default 2;\n", "extension")


@pytest.fixture
def records(tmp_path) -> InstallRecords:
    return InstallRecords({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})


def installed(target: SettingsTarget, records: InstallRecords) -> str:
    plan = plan_install(CLAUDE_CODE, target, records)
    write_all([change for change in (plan.record, plan.change) if change.before != change.after])
    return plan.status


def uninstalled(target: SettingsTarget, records: InstallRecords) -> str:
    plan = plan_uninstall(target, records)
    write_all([change for change in (plan.change, plan.record) if change.before != change.after], plan.folders)
    return plan.status


def test_it_is_created_brought_up_to_date_and_removed_with_the_folders_made_for_it(tmp_path, records):
    path = tmp_path / "agent" / "extensions" / "compactor.js"
    assert installed(SettingsTarget(path, OURS), records) == "created"
    assert installed(SettingsTarget(path, OURS), records) == "unchanged"
    assert installed(SettingsTarget(path, NEWER), records) == "changed"
    assert path.read_text() == NEWER.text
    assert uninstalled(SettingsTarget(path, OURS), records) == "removed"
    assert not (tmp_path / "agent").exists()


def test_it_is_removed_although_nobody_remembers_that_it_was_installed(tmp_path, records):
    path = tmp_path / "compactor.js"
    path.write_text(OURS.text)
    assert uninstalled(SettingsTarget(path, NEWER), records) == "removed"
    assert not path.exists()


def test_an_empty_file_that_was_there_is_there_again(tmp_path, records):
    path = tmp_path / "compactor.js"
    path.write_text("\n\n")
    assert installed(SettingsTarget(path, OURS), records) == "changed"
    assert uninstalled(SettingsTarget(path, OURS), records) == "changed"
    assert path.read_text() == "\n\n"


def test_a_file_of_somebody_else_is_refused_by_an_install_and_stays_with_an_uninstall(tmp_path, records):
    path = tmp_path / "compactor.js"
    path.write_text(THEIRS)
    with pytest.raises(BadSetting, match=r"compactor\.js, line 1: this file was not written by compactor.*rename"):
        plan_install(CLAUDE_CODE, SettingsTarget(path, OURS), records)
    assert uninstalled(SettingsTarget(path, OURS), records) == "unchanged"
    assert path.read_text() == THEIRS


@given(st.text())
def test_whatever_somebody_else_wrote_is_not_taken_for_ours(text):
    assert OURS.without_ours(text, UNKNOWN) == text
    assert OURS.registered(text) == []
