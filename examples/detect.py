"""Write the same run folder as ``excess detect FILES -o FOLDER -m forest -m li-ma-tree --null-test``."""

import sys

from excess.analysis import OnOffDataset, detect

*files, folder = sys.argv[1:]
observation = OnOffDataset.from_files(files)
print(observation)
run = detect(observation, ["forest", "li-ma-tree"], null_tests=True)
run.write(folder)
run.report(f"{folder}/report.html")
print(run.verdict)
