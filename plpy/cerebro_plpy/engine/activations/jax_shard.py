"""One shard of a net, as functions that JAX can compile.

A function takes the values of the shard's variables and the tensors that enter the shard. It reads no
variable of Keras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from cerebro_plpy.engine.activations import blocks, recompute
from cerebro_plpy.engine.activations.shards import Span, is_of_each, slots_of
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.jax_given import given_to
from cerebro_plpy.engine.models import forms


class Shard:
    """Consecutive layers of a model, with their variables and the optimizer's variables for them.

    In the methods, `train` has the values of the shard's weights that train, and `others` those of its
    other variables.
    """

    def __init__(self, model: Any, span: Span, inputs: Sequence[str]) -> None:
        self._model, self._names = model, inputs
        self._functional = getattr(model, "_functional", None) or model
        nodes = blocks.nodes_of(self._functional)
        self._nodes = nodes[span.first : span.last]
        self._is_first = span.first == 0
        self._enters = self._functional.inputs if self._is_first else nodes[span.first - 1].outputs
        is_last = span.last == len(nodes)
        self._leaves = self._functional.outputs if is_last else self._nodes[-1].outputs
        own = {id(v): v for node in self._nodes for v in getattr(node.operation, "variables", ())}
        places = [n for n, v in enumerate(model.trainable_variables) if id(v) in own]
        self.trainable = [model.trainable_variables[place] for place in places]
        trained = {id(v) for v in self.trainable}
        self.others = [v for key, v in own.items() if key not in trained]
        # The variables of `others` that the forward pass changes, known once it has been traced.
        self.changed: list[Any] = []
        every = slots_of(model.optimizer, len(model.trainable_variables))
        self.slots = [slot for place in places for slot in every[place]]
        owned = {id(slot) for slots in every for slot in slots}
        self.shared = [v for v in model.optimizer.variables if id(v) not in owned]
        self._optimizer = _optimizer_of(model.optimizer, places, [*self.shared, *self.slots])
        # Whether a shard before this one trains, and needs the slopes of the tensors that enter this one.
        self.hands_slopes_on = False

    def forward(self, training: bool, train: Any, others: Any, passing: Any) -> Any:
        """Return the tensors that leave the shard, the sum of the layers' losses, and changed values.

        The changed values are of the untrained variables `self.changed`. `passing` is the tensors that enter
        the shard, and the sum of the losses of the layers before it.
        """
        return self._compute(training, train, others, *passing)

    def backward(self, own: Any, others: Any, steps: Any, passing: Any) -> Any:
        """Compute the shard again, and make the optimizer's step for its weights.

        Return the gradients of the tensors that enter the shard, and the values after the step: of the
        shard's weights, of the optimizer's variables for them, and of its variables for all weights.

        Before the step, `own` has the values of the weights and of the optimizer's variables for them;
        `steps` has those of the optimizer's variables for all weights, and its numbers such as `beta_1`.
        `passing` is the tensors that enter the shard, and the gradients of the tensors that leave it.
        """
        enter, slopes = passing

        def through(train: Any, enter: Any) -> Any:
            return self._compute(True, train, others, enter, jnp.zeros(()))[:2]

        return self._step(through, own, steps, enter, (slopes, jnp.ones(())))[0]

    def finish(self, own: Any, others: Any, steps: Any, passing: Any, batch: Any) -> Any:
        """Compute the last shard and the loss, and make the optimizer's step for the shard's weights.

        Return what `backward` returns, and the values of the variables `self.changed` and of the metrics'
        variables. `passing` is the tensors that enter the shard, and the sum of layers' losses so far;
        `batch` is the labels and the values of the metrics' variables.
        """
        enter, extra = passing
        labels, metrics = batch

        def through(train: Any, enter: Any) -> Any:
            left, total, changed = self._compute(True, train, others, enter, extra)
            loss, seen = self._loss(True, left, total, labels, metrics)
            return loss, (loss, left, changed, seen)

        stepped, (loss, left, changed, seen) = self._step(through, own, steps, enter, None)
        return stepped, changed, self._measured(seen, loss, enter, left, labels)

    def measure(self, train: Any, others: Any, passing: Any, batch: Any) -> Any:
        """Compute the last shard without training; return the values that this changes.

        They are the values of the variables `self.changed` and of the metrics' variables. The arguments are
        as in `finish`.
        """
        enter, extra = passing
        labels, metrics = batch
        left, total, changed = self._compute(False, train, others, enter, extra)
        loss, seen = self._loss(False, left, total, labels, metrics)
        return changed, self._measured(seen, loss, enter, left, labels)

    def _step(
        self, through: Callable[[Any, Any], Any], own: Any, steps: Any, enter: Any, slopes: Any
    ) -> tuple[Any, Any]:
        """Make a step of the optimizer; return the results of `backward`, and further results of `through`.

        `through` computes the shard from the values of its weights and from the tensors that enter it. For
        the last shard, `through` also has further results, and `slopes` is None, as the gradients begin at
        the loss. For other shards, `slopes` is the gradients of the tensors that leave the shard.
        """
        (train, slots), (shared, given) = own, steps
        # If no shard before this one trains, no slopes of its inputs are needed; whole numbers have none.
        sloped = enter if self.hands_slopes_on else []

        def compute(train: Any, sloped: Any) -> Any:
            return through(train, sloped or enter)

        if slopes is None:
            loss, pull, aside = jax.vjp(compute, train, sloped, has_aux=True)
            slopes = jnp.ones_like(loss)
        else:
            _, pull = jax.vjp(compute, train, sloped)
            aside = None
        train_slopes, enter_slopes = pull(slopes)
        return (enter_slopes, self._apply(train, slots, shared, given, train_slopes)), aside

    def _compute(self, training: bool, train: Any, others: Any, enter: Any, extra: Any) -> Any:
        keras = runtime.keras()
        told = [*zip(self.trainable, train, strict=True), *zip(self.others, others, strict=True)]
        with keras.StatelessScope(told, collect_losses=True, initialize_variables=False) as scope:
            before = dict(scope.state_mapping)
            if self._is_first:
                enter = self._functional._standardize_inputs(forms.pack(self._model, enter))
            tensors = {id(x): y for x, y in zip(self._enters, enter, strict=True)}
            recompute.run_nodes(self._nodes, {"training": training}, tensors)
            weighed = [v.regularizer(v) for v in self.trainable if v.regularizer is not None]
            extra = sum((keras.ops.sum(loss) for loss in [*scope.losses, *weighed]), extra)
        self.changed = [v for v in self.others if scope.get_current_value(v) is not before[id(v)]]
        left = [tensors[id(x)] for x in self._leaves]
        return left, extra, [scope.get_current_value(v) for v in self.changed]

    def _apply(self, train: Any, slots: Any, shared: Any, given: Any, slopes: Any) -> Any:
        """Return the values of the shard's weights and of the optimizer's variables after a step.

        The values before the step are `train`, those of the shard's weights; `slots`, of the optimizer's
        variables for these; and `shared`, of its variables for all weights. `given` has the optimizer's
        numbers such as `beta_1`, and `slopes` the gradients of the shard's weights.
        """
        if not self.trainable:
            return train, slots, shared
        variables = [*self.trainable, *self.slots, *self.shared]
        told = list(zip(variables, [*train, *slots, *shared], strict=True))
        scoped = runtime.keras().StatelessScope(told, initialize_variables=False)
        with scoped as scope, given_to(self._optimizer, self._names, given):
            self._optimizer.apply(slopes, self.trainable)
        return tuple(
            [scope.get_current_value(v) for v in part] for part in (self.trainable, self.slots, self.shared)
        )

    def _loss(self, training: bool, left: Any, extra: Any, labels: Any, metrics: Any) -> Any:
        """Return the total loss and the new values of metrics' variables; `extra` is the layers' losses."""
        made = self._packed(left)
        with _told_of(self._model.metrics_variables, metrics) as scope:
            self._model._losses_override = [extra]
            loss = self._model.compute_loss(
                x=None, y=labels[0], y_pred=made, sample_weight=_weights(labels), training=training
            )
            self._model._losses_override = []
        return loss, [scope.get_current_value(v) for v in self._model.metrics_variables]

    def _measured(self, metrics: Any, loss: Any, enter: Any, left: Any, labels: Any) -> Any:
        found = self._model._update_metrics_variables(
            metrics, loss, enter, labels[0], self._packed(left), _weights(labels)
        )
        return found[1]

    def _packed(self, left: Any) -> Any:
        if len(left) == 1:
            return left[0]
        return runtime.keras().tree.pack_sequence_as(self._functional._outputs_struct, left)


def _weights(labels: Sequence[Any]) -> Any:
    return labels[1] if len(labels) > 1 else None


def _told_of(variables: Iterable[Any], values: Iterable[Any]) -> Any:
    told = list(zip(variables, values, strict=True))
    return runtime.keras().StatelessScope(told, initialize_variables=False)


def _optimizer_of(optimizer: Any, places: Sequence[int], variables: list[Any]) -> Any:
    """Return a view of an optimizer that knows only the trained variables at `places`.

    `variables` are the optimizer's own variables: those for all weights, and those for the weights at
    `places`.
    """
    # A copy by Python's means would go through Keras' files, and have variables of its own.
    view = object.__new__(type(optimizer))
    view.__dict__.update(vars(optimizer))
    count = len(optimizer._trainable_variables)
    known = {
        name: [value[place] for place in places]
        for name, value in vars(optimizer).items()
        if is_of_each(name, value, count)
    }
    trained = [optimizer._trainable_variables[place] for place in places]
    known["_trainable_variables"] = trained
    known["_variables"] = variables
    indices = {view._var_key(variable): place for place, variable in enumerate(trained)}
    # Keras would track what is set in the usual way.
    view.__dict__.update(known, _trainable_variables_indices=indices)
    return view
