"""cerebro.smooth, and nets on features of cerebro.propagate: neighbors of a node improve its prediction."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import psycopg2
import pytest
from scipy import sparse

from fixtures import Connect, MakeRole
from trial import Trial

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]
NODES = 400
TRAIN = "SELECT value FROM cerebro.train(%s, 'subject', %s, '30 s', %s) WHERE best"
OPTIONS = {"nets": "graph", "configs": 2, "epochs": 9, "single": True, "backend": "jax"}


@pytest.fixture(scope="module", autouse=True)
def communities(trial: Trial) -> None:
    """Make a graph of two communities: features are mostly noise, and most edges stay in a community."""
    rng = np.random.default_rng(5)
    x = (np.arange(NODES) % 2)[:, None] + rng.normal(scale=2.0, size=(NODES, 4))
    papers = [(i, "ab"[i % 2], row.tolist()) for i, row in enumerate(x.round(3))]
    trial.table("papers", "paper integer, subject text, x real[]", papers)
    ends = rng.integers(0, NODES, (12_000, 2))
    kept = ends[rng.random(12_000) < np.where(ends[:, 0] % 2 == ends[:, 1] % 2, 0.35, 0.07)]
    trial.table("cites", "citing integer, cited integer", kept.tolist())
    trial.sql(
        "SELECT cerebro.propagate('papers', 'cites', 'papers_h', 'paper', 'citing', 'cited', '{x}', 2,"
        " 'symmetric')"
    )


@pytest.fixture(scope="module")
def accuracies(trial: Trial) -> dict[str, float]:
    """Return the accuracies of two nets: on a node's own features, and with the features of two hops."""
    trial.sql("CREATE TABLE own AS SELECT subject, x FROM papers")
    trial.sql("CREATE TABLE hops AS SELECT subject, x, x_1, x_2 FROM papers_h")
    return {name: trial.value(TRAIN, name, f"{name}_model", json.dumps(OPTIONS)) for name in ("own", "hops")}


def test_a_net_over_the_hops_is_better_by_twenty_points(accuracies: dict[str, float], trial: Trial) -> None:
    assert accuracies["hops"] > accuracies["own"] + 0.2
    layers = [row[0] for row in trial.sql("SELECT layer FROM cerebro.show_net('hops_model_nets', 1)")]
    assert "hops" in layers


# It compares with cerebro.predict in a query, which Greenplum cannot answer.
@pytest.mark.postgresql
def test_known_labels_mend_what_a_model_answers(accuracies: dict[str, float], trial: Trial) -> None:
    trial.sql("ALTER TABLE papers_h ADD known text")
    trial.sql("UPDATE papers_h SET known = subject WHERE paper % 10 < 4")
    smoothed = trial.sql(
        "SELECT node::integer, label, class, probability"
        " FROM cerebro.smooth('own_model', NULL, 'papers_h', 'cites', labels => 'known') ORDER BY 1"
    )
    assert [row[1] for row in smoothed[:6]] == ["a", "b", "a", "b", None, None]
    unknown = [row for row in smoothed if row[1] is None]
    right = np.mean([row[2] == "ab"[row[0] % 2] for row in unknown])
    assert right > accuracies["own"] + 0.15
    # The smoothed answers, computed by NumPy from the answers of the model.
    answers = np.zeros((NODES, 2))
    for node, found, probability in trial.sql(
        "SELECT h.paper, p.class, p.probability FROM papers_h AS h, cerebro.predict('own_model', h) AS p"
    ):
        answers[node, "ab".index(found)], answers[node, 1 - "ab".index(found)] = probability, 1 - probability
    a, b = np.array(trial.sql("SELECT citing, cited FROM cites")).T
    counted = sparse.coo_array((np.ones(len(a)), (b, a)), shape=(NODES, NODES)).tocsr()
    both = counted.maximum(counted.T) + sparse.eye_array(NODES)
    roots = sparse.diags_array(1 / np.sqrt(both.sum(axis=1)))
    steps, known = roots @ both @ roots, (np.arange(NODES) % 10 < 4)[:, None]
    truth = np.eye(2)[np.arange(NODES) % 2]
    errors = spread = np.where(known, truth - answers, 0)
    for _ in range(50):
        spread = np.clip(0.8 * (steps @ spread) + 0.2 * errors, -1, 1)
    usual = np.abs(errors).sum() / known.sum()
    times = usual / np.abs(spread).sum(axis=1, keepdims=True)
    wanted = begins = np.where(known, truth, answers + np.where(times > 1000, 1, times) * spread)
    for _ in range(50):
        wanted = np.clip(0.8 * (steps @ wanted) + 0.2 * begins, 0, 1)
    wanted = wanted / wanted.sum(axis=1, keepdims=True)
    assert [row[2] for row in smoothed] == ["ab"[place] for place in wanted.argmax(axis=1)]
    np.testing.assert_allclose([row[3] for row in smoothed], wanted.max(axis=1), atol=1e-5)


def test_a_node_without_a_label_is_unknown_also_to_a_model_that_knows_null(
    accuracies: dict[str, float], trial: Trial
) -> None:
    trial.sql(
        "CREATE TABLE partly AS SELECT paper, x, CASE WHEN paper % 10 < 4 THEN subject END AS subject"
        " FROM papers"
    )
    trial.call(
        "training_preprocessor_dl", "partly", "partly_packed", "subject", "x", options={"segments": 2}
    )  # fmt: skip
    trial.sql("SELECT cerebro.load_net('partly_nets', 'partly_packed', 'Dense(4)')")
    trial.sql(
        "SELECT cerebro.madlib_fit('partly_packed', 'partly_model', 'partly_nets', 1,"
        " $$loss='categorical_crossentropy', optimizer='adam'$$, 'batch_size=32', 2)"
    )
    smoothed = trial.sql(
        "SELECT label FROM cerebro.smooth('partly_model', NULL, 'partly', 'cites', labels => 'subject',"
        " id => 'paper', source => 'citing', target => 'cited')"
    )
    assert sum(label is None for (label,) in smoothed) == NODES * 6 // 10


def test_classes_that_are_floats_are_known_however_they_are_written(trial: Trial) -> None:
    trial.sql("CREATE TABLE halves AS SELECT paper, x, (paper % 2)::float8 AS subject FROM papers")
    options = {"columns": "auto", "exclude": ["paper"], "task": "classification"}
    trial.call("training_preprocessor_dl", "halves", "halves_packed", "subject", "*", options=options)
    trial.sql("SELECT cerebro.load_net('halves_nets', 'halves_packed', 'Dense(4)')")
    trial.sql(
        "SELECT cerebro.madlib_fit('halves_packed', 'halves_model', 'halves_nets', 1,"
        " $$loss='categorical_crossentropy', optimizer='adam'$$, 'batch_size=32', 2)"
    )
    smoothed = trial.sql(
        "SELECT node::integer % 2, label::float, class::float FROM cerebro.smooth('halves_model', NULL,"
        " 'halves', 'cites', labels => 'subject', id => 'paper', source => 'citing', target => 'cited')"
    )
    assert len(smoothed) == NODES and all(node == label == found for node, label, found in smoothed)


WRONG = {
    "no labels": ("'papers_h', 'cites', NULL", "labels is NULL"),
    "no column": ("'papers_h', 'cites', 'topic'", 'column "topic" does not exist'),
    "labels of other things": ("'papers_h', 'cites', 'paper'", "knows the label .* of none of 400 nodes"),
    "no graph": ("'papers', 'cites', 'subject'", "was not made by cerebro.propagate"),
    "no ends": ("'papers', 'cites', 'subject', 'paper'", "Give source, target, or name such a table"),
    "too much": ("'papers_h', 'cites', 'subject', smooth => 1", "smooth is 1.0, it must be from 0"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(
    accuracies: dict[str, float], trial: Trial, arguments: str, message: str
) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        trial.sql(f"SELECT * FROM cerebro.smooth('own_model', NULL, {arguments})")


def test_nodes_are_not_numbered_in_a_transaction_that_only_reads(
    accuracies: dict[str, float], trial: Trial
) -> None:
    trial.sql("BEGIN READ ONLY")
    with pytest.raises(
        psycopg2.errors.ReadOnlySqlTransaction, match="the table of the nodes' numbers cannot"
    ):
        trial.sql("SELECT * FROM cerebro.smooth('own_model', NULL, 'papers_h', 'cites', 'subject')")
    trial.sql("ROLLBACK")


def test_a_graph_is_smoothed_with_the_callers_rights_and_whatever_its_names(
    accuracies: dict[str, float], trial: Trial, connect: Connect, role: MakeRole
) -> None:
    user = role()
    trial.sql('CREATE SCHEMA "o d"')
    trial.sql("""CREATE TABLE "o d"."n's" AS SELECT paper AS "i d", x, subject AS "la""bel" FROM papers""")
    trial.sql('CREATE TABLE "o d"."e;--" AS SELECT citing AS "fr om", cited AS "to", 1 AS "w $1" FROM cites')
    trial.sql(f'GRANT USAGE ON SCHEMA "o d" TO {user}; GRANT SELECT ON "o d"."n\'s" TO {user}')
    trial.sql("SELECT cerebro.register('own_model', 'smoothed')")
    trial.sql("SELECT cerebro.grant_model('smoothed', %s, 'predict')", user)
    call = (
        """SELECT count(*), count(DISTINCT class) FROM cerebro.smooth('smoothed@1', NULL, '"o d"."n''s"',"""
        """ '"o d"."e;--"', labels => '"la""bel"', id => '"i d"', source => '"fr om"', target => '"to"',"""
        """ weight => '"w $1"')"""
    )
    with closing(connect(user=user)) as connection:
        session = Trial(connection)
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for table e;--"):
            session.sql(call)
        trial.sql(f'GRANT SELECT ON "o d"."e;--" TO {user}')
        assert session.sql(call) == [(NODES, 2)]
        trial.sql("SELECT cerebro.revoke_model('smoothed', %s)", user)
        with pytest.raises(psycopg2.Error, match="no registered model 'smoothed@1'"):
            session.sql(call)
