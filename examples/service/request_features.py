"""What the router sees of a request. Replace it by an embedding; log what it gives."""

import re

_WORDS = re.compile(r"[^\W\d_]+")
_HARD = re.compile(r"\b(prove|derive|integral|optimi[sz]e|refactor|theorem|why|compare)\b", re.I)


def features(messages):
    """Numbers of a conversation, of the same length for each.

    Parameters
    ----------
    messages : list of dict
        With ``role`` and ``content``, as in a chat completion.

    Returns
    -------
    list of float
    """
    text = " ".join(m["content"] for m in messages)
    words = _WORDS.findall(text)
    n_words = max(len(words), 1)
    return [
        float(len(messages)),
        float(len(text)),
        float(n_words),
        sum(map(len, words)) / n_words,
        float(sum(map(str.isdigit, text))),
        float(text.count("?")),
        float(text.count("```")),
        float(len(_HARD.findall(text))),
    ]
