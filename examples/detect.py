"""What ``excess detect FILES -o FOLDER -m forest -m li-ma-tree --null-test`` does: the same folder, file for file."""

import sys

from excess.analysis import observe, search

*files, folder = sys.argv[1:]
observation = observe(files)
print(observation)
run = search(observation, ["forest", "li-ma-tree"], null_tests=True)
run.write(folder)
run.report(f"{folder}/report.html")
print(run.verdict)
