"""The nets of keras.applications, with the side in pixels of the smallest image that each accepts."""

from __future__ import annotations

from typing import Any

# The nets of one family differ only in size.
SIDES = {
    **dict.fromkeys(
        """ConvNeXtBase ConvNeXtLarge ConvNeXtSmall ConvNeXtTiny ConvNeXtXLarge DenseNet121 DenseNet169
        DenseNet201 EfficientNetB0 EfficientNetB1 EfficientNetB2 EfficientNetB3 EfficientNetB4
        EfficientNetB5 EfficientNetB6 EfficientNetB7 EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2
        EfficientNetV2B3 EfficientNetV2L EfficientNetV2M EfficientNetV2S MobileNet MobileNetV2
        MobileNetV3Large MobileNetV3Small NASNetLarge NASNetMobile ResNet101 ResNet101V2 ResNet152
        ResNet152V2 ResNet50 ResNet50V2 VGG16 VGG19""".split(),
        32,
    ),
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "Xception": 71,
}
FEW = "ConvNeXtTiny DenseNet121 EfficientNetB0 MobileNetV2 ResNet50".split()


def net(keras: Any, name: str) -> Any:
    """Return an untrained net of keras.applications by its name, without its classification layers."""
    side = SIDES[name]
    make = getattr(keras.applications, name)
    return make(weights=None, include_top=False, input_shape=(side, side, 3), pooling="avg")


def names(keras: Any) -> set[str]:
    """Return the names of all nets that keras.applications of the installed Keras has."""
    return {name for name in vars(keras.applications) if name[0].isupper()}
