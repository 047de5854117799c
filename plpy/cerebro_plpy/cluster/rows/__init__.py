"""The rows of a cluster, packed and predicted where they are."""
