from ._dataset import OnOffDataset as OnOffDataset
from ._regions import Regions as Regions
from ._regions import assign_regions as assign_regions
from ._regions import find_regions as find_regions
from ._settings import Proposal as Proposal
from ._settings import propose_config as propose_config
from ._simulate import simulate_labelled as simulate_labelled
from ._simulate import simulate_observation as simulate_observation
