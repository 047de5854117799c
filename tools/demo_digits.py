"""Write scikit-learn's digits in the form that COPY reads: label, then 64 pixels as an array."""

from sklearn.datasets import load_digits


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    for label, pixels in zip(labels, images, strict=True):
        print(f"{label}\t{{{','.join(f'{pixel:g}' for pixel in pixels)}}}")


if __name__ == "__main__":
    main()
