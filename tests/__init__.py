import sklearn

# The version of scikit-learn, for what older ones do in another way.
SKLEARN = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
