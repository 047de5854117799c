"""Refuses architectures that hold anything but listed objects, which are data and cannot run code.

The names are written out, so that a layer of a later Keras that loads files or code is not allowed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cerebro_plpy import errors
from cerebro_plpy.engine import own
from cerebro_plpy.engine.checks import hub, quantized
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.madlib.registered import LAYER

MODELS = frozenset({"Sequential", "Functional", "Model"})
LAYERS = frozenset(
    """Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D
    AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add
    AdditiveAttention AlphaDropout Attention AutoContrast Average AveragePooling1D
    AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization Bidirectional
    CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D
    Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose Convolution2D
    Convolution2DTranspose Convolution3D Convolution3DTranspose Cropping1D Cropping2D Cropping3D Dense
    DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Equalization
    Flatten GRU GRUCell GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D
    GlobalAveragePooling3D GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D
    GlobalMaxPool2D GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention Identity InputLayer LSTM LSTMCell LayerNormalization
    LeakyReLU Masking MaxPool1D MaxPool2D MaxPool3D MaxPooling1D MaxPooling2D MaxPooling3D Maximum
    MelSpectrogram Minimum MultiHeadAttention Multiply Normalization PReLU Permute RMSNormalization RNN
    RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop
    RandomElasticTransform RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomHue
    RandomInvert RandomPerspective RandomPosterization RandomRotation RandomSaturation RandomSharpness
    RandomShear RandomTranslation RandomZoom ReLU RepeatVector Rescaling Reshape Resizing
    ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D
    SeparableConvolution2D SimpleRNN SimpleRNNCell Softmax Solarization SpatialDropout1D
    SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells Subtract TimeDistributed
    UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D ZeroPadding2D
    ZeroPadding3D""".split()
)
# AugMix draws from Python's own generator while a net is traced, and so differs in each session.
_REASONS = {
    "AugMix": "What it does follows no seed, so that no run could be repeated. The Random layers follow one.",
    "StochasticDepth": "What it drops follows no seed, so that no run could be repeated. Make the net with"
    " drop_path_rate=0.",
}
_REASON = "Only built-in parts of Keras that hold no code are allowed."
INITIALIZERS = frozenset(
    """Constant GlorotNormal GlorotUniform HeNormal HeUniform Identity IdentityInitializer LecunNormal
    LecunUniform Ones Orthogonal OrthogonalInitializer RandomNormal RandomUniform STFT STFTInitializer
    TruncatedNormal VarianceScaling Zeros""".split()
)
REGULARIZERS = frozenset({"L1", "L1L2", "L2", "OrthogonalRegularizer"})
CONSTRAINTS = frozenset({"MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"})
POLICIES = frozenset({"DTypePolicy", "FloatDTypePolicy", quantized.POLICY})
ACTIVATIONS = frozenset(
    """celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu
    linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus
    softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold""".split()
)
# Values in configs and calls that Keras writes as objects; a tensor's history refers to layers by name.
VALUES = frozenset({"__keras_tensor__", "__tensor__", "__numpy__", "__slice__", "__ellipsis__"})
_OPERATIONS = re.compile(r"keras\.src\.ops\.(nn|numpy|core|math|linalg|image)")
_MODULES = {
    "keras": MODELS | POLICIES,
    "keras.models": MODELS,
    "keras.src.models.functional": frozenset({"Functional"}),
    "keras.src.models.sequential": frozenset({"Sequential"}),
    "keras.src.models.model": frozenset({"Model"}),
    "keras.layers": LAYERS,
    # Layers of nets of keras.applications that keras.layers does not have.
    "keras.src.applications.convnext": frozenset({"LayerScale"}),
    "keras.src.applications.inception_resnet_v2": frozenset({"CustomScaleLayer"}),
    "keras.initializers": INITIALIZERS,
    "keras.regularizers": REGULARIZERS,
    "keras.constraints": CONSTRAINTS,
    "keras.dtype_policies": POLICIES,
    "keras.quantizers": frozenset({"AbsMaxQuantizer", "Int8QuantizationConfig"}),
}
# How a registered layer stands in a checked architecture: by its name and its version.
_REGISTERED = re.compile(r"cerebro>(\w{1,63})@([0-9a-f]{64})")
_DEPTH = 60
_CUSTOM = "Custom objects are not allowed, but layers that a superuser has registered."


def check(config: dict[str, Any]) -> None:
    """Raise an error if an architecture holds an object that is not on the lists, at any depth.

    This also writes the version of each registered layer into the architecture.
    """
    if config.get("class_name") not in MODELS:
        raise _refused(f'"{config.get("class_name")}"', "the top level", "It is not a model.")
    for path, found in _objects(config, "model", 0):
        _check_quantized(path, found)
        if own.is_members(found):
            found["module"] = None
            continue
        if _pin(path, found):
            continue
        if hub.is_named(found):
            _check_hub(path, found)
        else:
            _check_object(path, found)


def registered_layers(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each registered layer in a checked architecture, by its registered name."""
    names = {found.get("registered_name") for _, found in _objects(config, "model", 0)}
    matches = (_REGISTERED.fullmatch(name) for name in names if isinstance(name, str))
    return {match[0]: match[2] for match in matches if match}


def has_members(config: dict[str, Any]) -> bool:
    return any(own.is_members(found) for _, found in _objects(config, "model", 0))


def hub_names(config: dict[str, Any]) -> set[str]:
    """Return the registered names of the objects of KerasHub in a checked architecture."""
    return {found["registered_name"] for _, found in _objects(config, "model", 0) if hub.is_named(found)}


def _check_quantized(path: str, found: dict[str, Any]) -> None:
    reason = quantized.refusal(found)
    if reason is not None:
        raise _refused(f"a {found['class_name']} quantized as {quantized.mode_of(found)}", path, reason)


def _check_hub(path: str, found: dict[str, Any]) -> None:
    if not hub.pin(found):
        raise _refused(f'"{found["class_name"]}" of KerasHub', path, hub.reason(found["class_name"]))
    if not hub.is_installed():
        raise hub.missing(found["class_name"])


def _pin(path: str, found: dict[str, Any]) -> bool:
    """Write the version of a registered layer into its JSON; return False if it is no registered layer.

    A registered layer cannot have a name that Keras uses.
    """
    name, written = found["class_name"], found.get("registered_name")
    pinned = _REGISTERED.fullmatch(written) if isinstance(written, str) else None
    if not isinstance(name, str):
        return False
    function = registered.find(name, (LAYER,), pinned[2] if pinned else None)
    if function is None or (pinned and pinned[1] != name):
        if pinned:
            raise CerebroError(
                f"the architecture names a version of the registered layer {pinned[1]} that is not there",
                hint="The view cerebro.functions shows the versions that you may use.",
                sqlstate=errors.NOT_SUPPORTED,
            )
        return False
    found |= {"module": None, "registered_name": f"cerebro>{name}@{function.digest}"}
    return True


def _objects(value: Any, path: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every serialized object within a value, with its path in the architecture."""
    if depth > _DEPTH:
        raise CerebroError(f"the architecture is nested more than {_DEPTH} levels deep")
    if isinstance(value, dict):
        if "class_name" in value:
            path = f"{path}/{_label(value)}"
            yield path, value
        for key, item in value.items():
            yield from _objects(item, path if key in ("config", "layers") else f"{path}/{key}", depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item, path, depth + 1)


def _label(value: dict[str, Any]) -> str:
    config = value.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    return str(name if isinstance(name, str) else value["class_name"])


def _check_object(path: str, found: dict[str, Any]) -> None:
    name, module = found["class_name"], found.get("module")
    if not isinstance(name, str):
        raise _refused(f"{name!r}", path, "A class name is a string.")
    if module is None:
        _check_without_module(path, name, found)
    elif not isinstance(module, str):
        raise _refused(f'"{name}"', path, "A module is a string.")
    elif module == "builtins" and name == "function":
        _check_function(path, found)
    elif not (_OPERATIONS.fullmatch(module) and _is_operation(name)) and name not in _MODULES.get(module, ()):
        raise _refused(f'"{module}.{name}"', path, _REASONS.get(name, _REASON), _meant(name, module))
    _check_registered(path, name, found.get("registered_name"))


def _check_without_module(path: str, name: str, found: dict[str, Any]) -> None:
    """Raise an error if an object without a module has a class name that is not on the lists."""
    if name == "function":
        _check_function(path, found)
    elif name not in VALUES and not any(name in names for names in _MODULES.values()):
        raise _refused(f'"{name}"', path, _REASONS.get(name, _REASON), _meant(name, "keras.layers"))


def _meant(name: str, module: str) -> str | None:
    """Return the allowed name in a module that was probably meant by `name`; None if there is none."""
    return None if name in _REASONS else nearest(name, sorted(_MODULES.get(module, ())))


def _check_function(path: str, found: dict[str, Any]) -> None:
    if found.get("config") not in ACTIVATIONS:
        given = found.get("config")
        meant = nearest(given, sorted(ACTIVATIONS)) if isinstance(given, str) else None
        raise _refused(f"function {given!r}", path, "Only built-in activations are allowed.", meant)


def _is_operation(name: str) -> bool:
    return name.isidentifier() and name[0].isupper()


def _check_registered(path: str, name: str, written: Any) -> None:
    """Raise an error if a registered name could reach code that a package has added to Keras."""
    if written not in (None, name, "function") and written not in ACTIVATIONS:
        raise _refused(f"registered name {written!r}", path, _CUSTOM)


def _refused(what: str, path: str, reason: str, meant: str | None = None) -> CerebroError:
    return CerebroError(
        f"the architecture holds {what}, which is not allowed",
        detail=f"It stands at {path.removeprefix('model/')}. {reason}",
        hint=f'Did you mean "{meant}"?' if meant else None,
        sqlstate=errors.NOT_SUPPORTED,
    )
