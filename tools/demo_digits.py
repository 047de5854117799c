"""Print scikit-learn's digits for COPY, an image on each line: its label, and its 64 pixels as an array."""

from sklearn.datasets import load_digits


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    for label, pixels in zip(labels, images, strict=True):
        print(f"{label}\t{{{','.join(f'{pixel:g}' for pixel in pixels)}}}")


if __name__ == "__main__":
    main()
