"""Write scikit-learn's digits in the form that COPY reads: label, then 64 pixels as an array."""

from sklearn.datasets import load_digits


def main() -> None:
    digits = load_digits()
    for label, pixels in zip(digits.target, digits.data, strict=True):
        print(f"{label}\t{{{','.join(f'{pixel:g}' for pixel in pixels)}}}")


if __name__ == "__main__":
    main()
