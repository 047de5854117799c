"""Rights on registered models: who predicts with models, who reads them, and who changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connect, Connection, MakeRole, Rows, execute
from registered import ASKED, COLUMNS, answers, train
from trial import Trial

pytestmark = pytest.mark.fresh_caller

SAID = "SELECT * FROM judged ORDER BY 1"


@pytest.fixture(scope="module", autouse=True)
def versions(trial: Trial) -> None:
    train(trial)
    for key in (1, 2):
        trial.sql("SELECT cerebro.register('models', 'churn', %s)", key)
    trial.sql("CREATE VIEW judged AS " + ASKED.format(key="").replace("%s", "'churn'"))


@dataclass
class User:
    """A role and its session; at first the role may only use cerebro and query one view."""

    name: str
    session: Connection

    def sql(self, query: str, *values: object) -> Rows:
        return execute(self.session, query, *values)

    def is_refused(self, query: str, *values: object) -> tuple[str, str]:
        """Run a query that must be refused, and return the SQLSTATE and the message."""
        with pytest.raises(psycopg2.Error) as caught:
            self.sql(query, *values)
        return str(caught.value.pgcode), str(caught.value)


@pytest.fixture
def user(trial: Trial, role: MakeRole, connect: Connect) -> Iterator[User]:
    name = role()
    trial.sql(f"GRANT SELECT ON judged TO {name}")
    with closing(connect(user=name)) as session:
        yield User(name, session)
    trial.sql("DELETE FROM cerebro._model_grant")


def grant(trial: Trial, user: User, privilege: str, model: str = "churn") -> None:
    trial.sql("SELECT cerebro.grant_model(%s, %s, %s)", model, user.name, privilege)


@pytest.mark.postgresql
def test_a_view_predicts_for_whoever_has_the_right_on_the_model(trial: Trial, user: User) -> None:
    one, two = answers(trial, "churn@1"), answers(trial, "churn@2")
    assert user.is_refused(SAID)[0] == "42P01"
    grant(trial, user, "predict")
    assert user.sql(SAID) == one
    trial.sql("SELECT cerebro.set_alias('churn', 'default', 2)")
    assert user.sql(SAID) == two
    trial.sql("SELECT cerebro.rollback('churn')")
    trial.sql("SELECT cerebro.revoke_model('churn', %s)", user.name)
    assert user.is_refused(SAID)[0] == "42P01"


@pytest.mark.postgresql
def test_a_model_without_the_right_is_as_one_that_is_not_there(trial: Trial, user: User) -> None:
    def ask(model: str) -> list[tuple[str, str]]:
        calls = (
            f"SELECT * FROM (SELECT 1 AS age) AS r, cerebro.predict('{model}@1', r)",
            f"SELECT * FROM (SELECT 1 AS age) AS r, cerebro.predict('{model}', r)",
            f"SELECT cerebro.read_model('{model}@1')",
            f"SELECT cerebro.show_net('{model}@1')",
            f"SELECT cerebro.madlib_evaluate('{model}@1', 'packed', 'x')",
            f"SELECT cerebro.set_alias('{model}', 'mine', 1)",
            f"SELECT cerebro.rollback('{model}')",
            f"SELECT cerebro.drop_version('{model}', 1)",
            f"SELECT cerebro.unregister('{model}')",
            f"SELECT cerebro.grant_model('{model}', '{user.name}', 'manage')",
            f"SELECT cerebro.revoke_model('{model}', '{user.name}')",
        )
        return [user.is_refused(call) for call in calls]

    there, absent = ask("churn"), ask("nobody")
    assert [(code, text.replace("churn", "nobody")) for code, text in there] == absent
    assert "No registered model that you may use is called churn." in there[1][1]
    for view in ("models", "model_versions", "model_history"):
        assert user.sql(f"SELECT * FROM cerebro.{view}") == []


@pytest.mark.postgresql
def test_who_may_predict_may_have_it_explained_and_checked(trial: Trial, user: User) -> None:
    explained = (
        "SELECT e.column_name, e.contribution FROM customers AS c, cerebro.explain_predict('churn', c) AS e"
        " WHERE c.id < 4"
    )
    calls = (
        explained,
        "SELECT * FROM cerebro.worst_rows('churn', 'customers')",
        "SELECT * FROM cerebro.check('churn', 'customers')",
    )
    trial.sql(f"GRANT SELECT ON customers TO {user.name}")
    for call in calls:
        assert user.is_refused(call)[0] in ("42704", "42P01")
    grant(trial, user, "predict")
    expected = trial.sql(explained)
    assert user.sql(explained) == expected
    for call in calls[1:]:
        assert user.sql(call)
    trial.sql(f"REVOKE SELECT ON customers FROM {user.name}")
    for call in calls:
        assert user.is_refused(call)[0] == "42501"
    trial.sql("SELECT cerebro.revoke_model('churn', %s)", user.name)
    assert user.is_refused(explained)[0] in ("42501", "42704", "42P01")


READS = {
    "its copy": "cerebro.register('churn', 'copied')",
    "what it holds": "cerebro.read_model('churn')",
    "its net": "cerebro.show_net('churn@1')",
    "an ensemble": "cerebro.ensemble('churn@1', 'x', packed_table => 'packed_validation')",
    "its table": "count(*) FROM cerebro._model_version",
    "its weights": "count(*) FROM cerebro._model_weights",
    "the view beneath": "count(*) FROM cerebro._usable_model",
    "a move of an alias": "cerebro.set_alias('churn', 'default', 2)",
    "a version": "cerebro.register('models', 'churn')",
    "the end of a version": "cerebro.drop_version('churn', 2)",
    "its end": "cerebro.unregister('churn')",
    "more rights": "cerebro.grant_model('churn', current_user, 'manage')",
    "the rights of others": "cerebro.revoke_model('churn', 'public')",
}


def test_who_may_only_predict_gets_nothing_else(trial: Trial, user: User) -> None:
    grant(trial, user, "predict")
    trial.sql(f"GRANT SELECT ON models, models_info, models_summary TO {user.name}")
    trial.sql(f"GRANT SELECT ON packed_validation, packed_validation_summary TO {user.name}")
    trial.sql(f"GRANT CREATE, USAGE ON SCHEMA public TO {user.name}")
    before = trial.sql("SELECT * FROM cerebro.models ORDER BY 1")
    for what, call in READS.items():
        code, _ = user.is_refused(f"SELECT {call}")
        assert code in ("42501", "55000"), what
    assert trial.sql("SELECT * FROM cerebro.models ORDER BY 1") == before


MANAGES = (
    "SELECT cerebro.set_alias('churn', 'default', 2)",
    "SELECT cerebro.drop_alias('churn', 'default')",
    "SELECT cerebro.promote('churn', 2)",
    "SELECT cerebro.rollback('churn')",
    "SELECT cerebro.register('models', 'churn')",
    "SELECT cerebro.register('churn@2', 'churn')",
    "SELECT cerebro.drop_version('churn', 2)",
    "SELECT cerebro.unregister('churn')",
    "SELECT cerebro.grant_model('churn', current_user, 'manage')",
    "SELECT cerebro.revoke_model('churn', 'public')",
    "SELECT cerebro.set_model_owner('churn', current_user)",
    "SELECT * FROM cerebro.retrain('churn', 'customers')",
    "SELECT cerebro.schedule('churn', '* * * * *', 'customers')",
    "SELECT cerebro.unschedule('churn')",
    "CALL cerebro.run_schedule('churn')",
)


@pytest.mark.parametrize("privilege", ["predict", "read"])
def test_who_does_not_manage_changes_nothing(trial: Trial, user: User, privilege: str) -> None:
    grant(trial, user, privilege)
    trial.sql(f"GRANT SELECT ON models, models_info, models_summary, customers TO {user.name}")
    seen = "SELECT m.*, v.version FROM cerebro.models AS m JOIN cerebro.model_versions AS v USING (name)"
    before, notes = trial.sql(seen), trial.sql("SELECT count(*) FROM cerebro.model_history")
    for call in MANAGES:
        assert user.is_refused(call)[0] == "42501", call
    # Checks of others are not kept.
    user.sql("SELECT * FROM cerebro.check('churn', 'customers')")
    assert trial.sql("SELECT FROM cerebro.model_health") == []
    assert trial.sql(seen) == before
    assert trial.sql("SELECT count(*) FROM cerebro.model_history") == notes
    trial.sql(f"REVOKE SELECT ON customers FROM {user.name}")


def test_an_error_shows_who_may_only_predict_nothing_of_the_training_rows(trial: Trial, user: User) -> None:
    """If rows are packed differently, the error shows training statistics only to roles that may read."""
    trial.sql(
        f"GRANT SELECT ON customers TO {user.name}; GRANT CREATE, USAGE ON SCHEMA public TO {user.name}"
    )
    user.sql("CREATE TABLE own_rows AS SELECT * FROM customers WHERE id <= 40")
    packing = "SELECT cerebro.training_preprocessor_dl('own_rows', 'own_packed', 'gone', %s, options => %s)"
    user.sql(packing, COLUMNS, '{"columns": "auto", "segments": 1}')
    document = trial.value("SELECT feature_specification FROM packed_summary")
    (age,) = [column for column in document["columns"] if column["name"] == "age"]
    calls = (
        "SELECT cerebro.madlib_evaluate('churn@1', 'own_packed', 'own_seen')",
        "SELECT * FROM cerebro.confusion_matrix('churn@1', 'own_packed')",
    )
    for privilege, shown in (("predict", False), ("read", True)):
        grant(trial, user, privilege)
        for call in calls:
            code, text = user.is_refused(call)
            assert code == "55000" and 'center of column "age" is' in text
            assert (str(age["center"]) in text) == shown and "public.packed" not in text
    user.sql("DROP TABLE own_rows, own_packed, own_packed_summary")
    trial.sql(f"REVOKE SELECT ON customers FROM {user.name}")


def test_what_the_views_show_depends_on_the_right(trial: Trial, user: User) -> None:
    asked = "SELECT count(lineage), count(compile_params), count(digest), count(metrics), min(privilege)"
    for privilege, number in (("predict", 0), ("read", 2), ("manage", 2)):
        grant(trial, user, privilege)
        assert user.sql(f"{asked} FROM cerebro.model_versions") == [(number, number, number, 2, privilege)]
        rows = "SELECT count(metrics #> '{training,rows}'), count(metrics #> '{training,loss}')"
        assert user.sql(f"{rows} FROM cerebro.model_versions") == [(number, 2)]
    assert user.sql("SELECT granted_to FROM cerebro.models") == [({user.name: "manage"},)]
    grant(trial, user, "read")
    assert user.sql("SELECT granted_to, default_version FROM cerebro.models") == [(None, 1)]


def test_the_states_of_an_evaluation_give_no_weights(trial: Trial, user: User) -> None:
    grant(trial, user, "predict")
    trial.sql(f"GRANT SELECT ON packed_validation, packed_validation_summary TO {user.name}")
    trial.sql(f"GRANT CREATE, USAGE ON SCHEMA public TO {user.name}")
    user.sql("SELECT cerebro.madlib_evaluate('churn@1', 'packed_validation', 'seen_by_user')")
    assert user.sql("SELECT count(*) FROM seen_by_user") == [(1,)]
    run_id = trial.value("SELECT max(run_id) FROM cerebro._run WHERE kind = 'evaluation'")
    assert user.is_refused("SELECT * FROM cerebro.config_state(%s, 1)", run_id)[0] == "42501"
    # Tables of one's own that name the run as that of their model have nothing of it either.
    user.sql("CREATE TABLE mine AS SELECT NULL::bytea AS model_weights, NULL::json AS model_arch")
    user.sql(
        "CREATE TABLE mine_summary AS SELECT ARRAY['gone'] AS dependent_varname, 1 AS model_id,"
        " 1.0::real AS normalizing_const, ARRAY[2] AS num_classes, 'loss=''mse'',optimizer=''SGD()''' AS"
        " compile_params, 'batch_size=1' AS fit_params, %s::bigint AS run_id, NULL::text AS backend",
        run_id,
    )
    user.is_refused("SELECT cerebro.register('mine', 'stolen')")
    user.sql("DROP TABLE mine, mine_summary, seen_by_user")


def test_who_may_read_gets_a_model_that_predicts_elsewhere(trial: Trial, user: User) -> None:
    grant(trial, user, "read")
    found = user.sql("SELECT model_arch, model_weights, about, features FROM cerebro.read_model('churn@2')")
    ((model_arch, weights, about, features),) = found
    assert bytes(weights) == trial.weights("models")[2]
    assert about["class_values"] == {"gone": ["no", "yes"]}
    trial.sql("SELECT cerebro.load_keras_model('taken', %s, %s)", json.dumps(model_arch), bytes(weights))
    trial.sql(
        "SELECT cerebro.madlib_keras_predict_byom('taken', 1, 'customers', 'id', '*', 'said', 'response',"
        " class_values => ARRAY['no', 'yes'], features => %s)",
        json.dumps(features),
    )
    by_row = [row[:2] for row in answers(trial, "churn@2")]
    assert trial.sql("SELECT id, class_value FROM said ORDER BY 1") == by_row
    layers = user.sql("SELECT layer, class, parameters FROM cerebro.show_net('churn@2')")
    assert layers == trial.sql("SELECT layer, class, parameters FROM cerebro.show_net('arch', 1)")
    assert user.sql("SELECT cerebro.register('churn@2', 'own_copy')") == [(1,)]
    assert user.is_refused("SELECT cerebro.set_alias('churn', 'x', 1)")[0] == "42501"
    trial.sql("SELECT cerebro.unregister('own_copy')")


def test_who_manages_adds_versions_and_grants(
    trial: Trial, user: User, role: MakeRole, connect: Connect
) -> None:
    grant(trial, user, "manage")
    trial.sql(f"GRANT SELECT ON models, models_info, models_summary TO {user.name}")
    version = user.sql("SELECT cerebro.register('models', 'churn', 1)")[0][0]
    user.sql("SELECT cerebro.set_alias('churn', 'theirs', %s)", version)
    user.sql("SELECT cerebro.drop_alias('churn', 'theirs'), cerebro.drop_version('churn', %s)", version)
    friend = role()
    user.sql("SELECT cerebro.grant_model('churn', %s, 'predict')", friend)
    with closing(connect(user=friend)) as session:
        assert execute(session, "SELECT name FROM cerebro.models") == [("churn",)]
    user.sql("SELECT cerebro.grant_model('churn', 'public', 'predict')")
    outsider = role()
    with closing(connect(user=outsider)) as session:
        assert execute(session, "SELECT name FROM cerebro.models") == [("churn",)]
        user.sql("SELECT cerebro.revoke_model('churn', 'public')")
        assert execute(session, "SELECT name FROM cerebro.models") == []


@pytest.mark.postgresql
def test_a_superusers_grant_opens_the_extension(trial: Trial, role: MakeRole, connect: Connect) -> None:
    stranger, owner = role(usage=False), role()
    trial.sql("SELECT cerebro.grant_model('churn', %s, 'predict')", stranger)
    trial.sql(f"GRANT SELECT ON judged TO {stranger}")
    with closing(connect(user=stranger)) as session:
        assert execute(session, SAID) == answers(trial, "churn@1")
    trial.sql("SELECT cerebro.revoke_usage(%s)", stranger)
    trial.sql("SELECT cerebro.grant_model('churn', %s, 'manage')", owner)
    with closing(connect(user=owner)) as session, pytest.raises(psycopg2.Error, match="grant_usage"):
        execute(session, "SELECT cerebro.grant_model('churn', %s, 'read')", stranger)


@pytest.mark.postgresql
def test_members_have_the_rights_of_their_role(trial: Trial, user: User, role: MakeRole) -> None:
    group = role()
    trial.sql("SELECT cerebro.grant_model('churn', %s, 'predict')", group)
    assert user.sql("SELECT name FROM cerebro.models") == []
    trial.sql(f"GRANT {group} TO {user.name}")
    assert user.sql(SAID) == answers(trial, "churn@1")


def test_a_model_outlives_the_role_that_owned_it(trial: Trial, user: User, connect: Connect) -> None:
    trial.sql("CREATE ROLE registry_leaver LOGIN; SELECT cerebro.grant_usage('registry_leaver')")
    trial.sql("GRANT SELECT ON models, models_info, models_summary TO registry_leaver")
    with closing(connect(user="registry_leaver")) as session:
        execute(session, "SELECT cerebro.register('models', 'left_behind', 1)")
        execute(session, "SELECT cerebro.grant_model('left_behind', %s, 'predict')", user.name)
    trial.sql("SELECT cerebro.grant_model('churn', 'registry_leaver', 'manage')")
    trial.sql("DROP OWNED BY registry_leaver; DROP ROLE registry_leaver")
    asked = "SELECT name, privilege FROM cerebro.models ORDER BY 1"
    assert user.sql(asked) == [("left_behind", "predict")]
    assert ("left_behind", "manage") in trial.sql(asked)
    assert "registry_leaver" not in str(trial.sql("SELECT granted_to FROM cerebro.models"))
    trial.sql("SELECT cerebro.unregister('left_behind')")


TRAP = """
CREATE TABLE theirs.stepped (who text); GRANT ALL ON theirs.stepped TO PUBLIC;
CREATE FUNCTION theirs.step() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO theirs.stepped VALUES (current_user); RETURN NULL; END $$;
CREATE TABLE theirs.trap AS TABLE packed WITH NO DATA;
CREATE VIEW theirs.trap_summary AS SELECT s.*, theirs.step() AS recipe FROM packed_summary AS s;
CREATE TABLE theirs.made AS TABLE models; CREATE TABLE theirs.made_info AS TABLE models_info;
CREATE TABLE theirs.made_summary AS TABLE models_summary;
UPDATE theirs.made_summary SET source_table = 'theirs.trap', validation_table = 'theirs.trap',
    qualified_names = NULL;
"""


def test_who_registers_a_strangers_model_runs_none_of_their_code(trial: Trial, user: User) -> None:
    """The stranger's summary names a trap as its packed rows; neither register nor check runs it."""
    trial.sql("GRANT SELECT ON models, models_info, models_summary, packed, packed_summary TO " + user.name)
    trial.sql(f"CREATE SCHEMA theirs; ALTER SCHEMA theirs OWNER TO {user.name}")
    trial.sql("GRANT USAGE ON SCHEMA theirs TO PUBLIC")
    user.sql(TRAP)
    trial.sql("SELECT cerebro.register('theirs.made', 'trapped')")
    assert trial.sql("SELECT * FROM theirs.stepped") == []
    assert "recipe" not in trial.value("SELECT lineage FROM cerebro.model_versions WHERE name = 'trapped'")
    trial.sql("SELECT * FROM cerebro.check('theirs.made', 'customers')")
    assert trial.sql("SELECT * FROM theirs.stepped") == []
    trial.sql("SELECT cerebro.unregister('trapped'); DROP SCHEMA theirs CASCADE")


WRONG = {
    "no such role": ("grant_model('churn', 'nobody_at_all', 'read')", "42704", "does not exist"),
    "no such privilege": ("grant_model('churn', 'public', 'write')", "22023", "no privilege 'write'"),
    "a privilege of NULL": ("grant_model('churn', 'public', NULL)", "22004", "privilege is NULL"),
    "a role of NULL": ("grant_model('churn', NULL, 'read')", "22004", "role is NULL"),
    "a reference": ("grant_model('churn@1', 'public', 'read')", "22023", "cannot be the name of a model"),
    "no model": ("read_model(NULL)", "22004", "model is NULL"),
    "a model table": ("read_model('models')", "42704", "no registered model"),
}


@pytest.mark.parametrize("call, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(trial: Trial, call: str, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.{call}")
    assert caught.value.pgcode == code and text in str(caught.value)


def test_a_model_goes_to_another_role(trial: Trial, user: User, role: MakeRole) -> None:
    """As by ALTER … OWNER TO, the owner gives a model to a role of which the owner is a member."""
    asked = "SELECT cerebro.set_model_owner('given', %s)"
    trial.sql("SELECT cerebro.register('models', 'given')")
    team = role()
    grant(trial, user, "manage", "given")
    assert "must be owner of the registered model given" in user.is_refused(asked, user.name)[1]
    trial.sql(asked, user.name)
    assert trial.value("SELECT owner FROM cerebro.models WHERE name = 'given'") == user.name
    assert trial.sql("SELECT FROM cerebro._model_grant WHERE name = 'given'") == []
    refused, said = user.is_refused(asked, team)
    assert refused == "42501" and f'must be a member of role "{team}"' in said
    trial.sql(f"GRANT {team} TO {user.name}")
    user.sql(asked, team)
    user.sql("SELECT cerebro.set_alias('given', 'as_a_member', 1)")
    trial.sql(f"REVOKE {team} FROM {user.name}")
    assert user.is_refused("SELECT cerebro.set_alias('given', 'no_more', 1)")[0] == "42704"
    assert user.is_refused(asked, user.name)[0] == "42704"


def test_the_models_of_a_role_that_goes_are_given_away(trial: Trial, user: User) -> None:
    trial.sql("CREATE ROLE registry_giver; SELECT cerebro.register('models', 'left')")
    trial.sql("SELECT cerebro.set_model_owner('left', 'registry_giver')")
    trial.sql("DROP OWNED BY registry_giver; DROP ROLE registry_giver")
    assert trial.value("SELECT count(*) FROM cerebro.models WHERE name = 'left'") == 1
    trial.sql("SELECT cerebro.set_model_owner('left', %s)", user.name)
    assert user.sql("SELECT privilege FROM cerebro.models WHERE name = 'left'") == [("manage",)]
    for wrong, text in {"public": "public cannot own a model", "nobody at all": "does not exist"}.items():
        with pytest.raises(psycopg2.Error, match=text):
            trial.sql("SELECT cerebro.set_model_owner('left', %s)", wrong)
