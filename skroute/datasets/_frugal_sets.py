"""The sets of FrugalML and FrugalMCT: services, prices, labels and digests."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from skroute.datasets._base import Arrays


class Apis(NamedTuple):
    """The services that answered a group of data sets, in the order of the columns.

    Attributes
    ----------
    ids : tuple of int
        Number of each service in the names of the source's files.

    names : tuple of str
        Name of each service.

    prices : tuple of float
        Price of each service in US dollars per 10,000 calls.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]
    prices: tuple[float, ...]

    def arrays(self) -> Arrays:
        """Return the ids, names and prices as arrays, by their names in a file."""
        return {
            "api_ids": np.array(self.ids, dtype=np.int32),
            "api_names": np.array(self.names),
            "price_per_10k": np.array(self.prices, dtype=np.float64),
        }


class LogSet(NamedTuple):
    """One data set of FrugalML or FrugalMCT.

    Attributes
    ----------
    task : str
        Name of the task, for the description.

    apis : Apis
        The services that answered.

    label_names : sequence of str
        Names of the classes or labels, in the order of the source's codes. Empty if the
        source has none.

    digest : str
        `content_digest` of the arrays.
    """

    task: str
    apis: Apis
    label_names: Sequence[str]
    digest: str


# Services, one group for each kind of task: ids, names and prices. The ids are those of
# the source.
_FACE = Apis(
    (0, 1, 2, 100),
    ("Google", "FacePP", "Microsoft", "GitHub(CNN)"),
    (15.0, 5.0, 10.0, 0.001),
)
_TEXT = Apis(
    (0, 3, 4, 100),
    ("Google", "Baidu", "Amazon", "GitHub(Vader)"),
    (2.5, 3.5, 0.75, 0.001),
)
_CHINESE_TEXT = Apis(
    (0, 3, 4, 100),
    ("Google", "Baidu", "Amazon", "GitHub(Bixin)"),
    (2.5, 3.5, 0.75, 0.001),
)
_SPEECH = Apis(
    (0, 2, 5, 101),
    ("Google", "Microsoft", "IBM", "GitHub(DeepSpeech)"),
    (60.0, 41.0, 25.0, 0.02),
)
_IMAGE_TAGS = Apis(
    (0, 2, 6, 100000),
    ("Google", "Microsoft", "EveryPixel", "GitHub(SSD)"),
    (15.0, 10.0, 6.0, 0.001),
)
_ENTITIES = Apis(
    (4, 5, 0, 100001),
    ("Amazon", "IBM", "Google", "GitHub(Spacy)"),
    (3.0, 30.0, 10.0, 0.001),
)
_SCENE_TEXT = Apis(
    (999, 88, 9, 1001),
    ("Google", "iFLYTEK", "Tencent", "GitHub(SSD)"),
    (15.0, 50.0, 210.0, 0.001),
)

# Names of classes and labels, in the order of the source's codes.
_EMOTIONS = ("anger", "disgust", "fear", "happy", "sad", "surprise", "neutral")
_SENTIMENTS = ("positive", "negative")
_DIGITS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
)
_COMMANDS = (
    *_DIGITS,
    *"bed bird cat dog down go happy house left marvin no off on right sheila".split(),
    *"stop tree up wow yes".split(),
    "(none of the 30 words)",
)
_PASCAL_OBJECTS = """
    person bird cat cow dog horse sheep aeroplane bicycle boat bus car motorbike train
    bottle chair diningtable pottedplant sofa tvmonitor
""".split()
_MIR_TAGS = """
    animals baby bird car clouds dog female flower food indoor lake male night people
    plant_life portrait river sea sky structures sunset transport tree water
""".split()

# Each function returns a `LogSet` of one kind. Its argument is the digest. `_images`
# takes two arguments: the names of the labels, and the digest.
_faces = partial(LogSet, "facial emotion recognition", _FACE, _EMOTIONS)
_texts = partial(LogSet, "sentiment analysis", _TEXT, _SENTIMENTS)
_chinese_texts = partial(LogSet, "sentiment analysis", _CHINESE_TEXT, _SENTIMENTS)
_words = partial(LogSet, "speech to text", _SPEECH, (*_DIGITS, "(no digit)"))
_commands = partial(LogSet, "speech to text", _SPEECH, _COMMANDS)
_images = partial(LogSet, "multi-label image classification", _IMAGE_TAGS)
_entities = partial(LogSet, "named entity recognition", _ENTITIES, ())
_scenes = partial(LogSet, "scene text recognition", _SCENE_TEXT, ())

# Sets of FrugalML by name, each with the digest of its arrays.
FRUGALML = {
    "FERPLUS": _faces(
        "21d06d1c12ab1e84f3936935654b08fd830bc9a7601383478c8857b40391dfca"
    ),
    "EXPW": _faces("528940b2e3477f51fdc664c9aa59e79d2f55dfe08e978d4eeb2cfd0c289ca1f3"),
    "AFFECTNET": _faces(
        "a176d03a1aab1a56b769a82aa6ee494da88319313b53077d4a08e91833611f3c"
    ),
    "YELP": _texts("012ad850f17ac99964336c3ba09143f3dd1d8b7ef3d11c5a615ced46446f83ed"),
    "IMDB": _texts("a063a1dfc738dd496f7c6f6ca976c4976aad241621fc85fcfb93e0c3a392c89d"),
    "WAIMAI": _chinese_texts(
        "235381ed1944ff7cd4b9eac7296acde817ea1a10be9b70cb23a622a359815f3b"
    ),
    "DIGIT": _words("0bb4d4d499abe3b790c6761232377277711e8a4efc55342e7825ff818d3616e7"),
    "AUDIOMNIST": _words(
        "eb0c6cf9ab2c3c63693dca6114fb119f0e8b2cda8885238d8eacf9c9b2ad5872"
    ),
    "COMMAND": _commands(
        "539331655154d5bc177aed52ad2e17c1cebe3138c7d94ce00c4fdccaaf36d9d0"
    ),
}

# Sets of FrugalMCT by name, each with the digest of its arrays.
FRUGALMCT = {
    "PASCAL": _images(
        _PASCAL_OBJECTS,
        "21300102b96ccbc33e462798e7c3e1012e2c4773d09bfea15053e43dbcf50990",
    ),
    "MIR": _images(
        _MIR_TAGS, "e174d32734ca4c970dba9f6e86e144ba2654676e5e5c35560005d3d858144fc7"
    ),
    "COCO": _images(
        (), "5f1b7b3c23467e1019b8214a62038c93c06adcc6ed84d8618c84f1b639de74b3"
    ),
    "CONLL": _entities(
        "474eeea6d2e383a82f2f16180d85a0c1f3efb3873af44aafed99368c9a4097e4"
    ),
    "GMB": _entities(
        "53dbdd1b9334d3752670cdf64ede0fac46ce2d6ca0fe50f416cdd2f4a153c953"
    ),
    "ZHNER": _entities(
        "9d72c3f4b75ebe27429b98d6fc43dcfab0759e259622f0f49bf6cf4d14e6063b"
    ),
    "LSVT": _scenes("b6a72baae6e1e019f801b785d82247bdcd09de0883982e42daba396a3c0347cf"),
    "MTWI": _scenes("a8faf210fe2e5e215873c59907118aab9db01d64d6e13e9db40a6460e4b1a04c"),
    "ReCTS": _scenes(
        "9da05226c52a6c860b3a7fcfa54631ea9b6845e732146e6800a35625bc790df3"
    ),
}
