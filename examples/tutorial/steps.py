"""The two steps of the Kubeflow spot tutorials, as Python components: fetch an archive, merge the CSV files in it."""

from kfp import dsl


@dsl.component
def web_downloader(url: str, data: dsl.Output[dsl.Artifact]) -> None:
    """Fetch the URL's content."""
    import urllib.request

    with urllib.request.urlopen(url) as response, open(data.path, "wb") as file:
        file.write(response.read())


@dsl.component
def merge_csv(file: dsl.Input[dsl.Artifact], table: dsl.Output[dsl.Dataset]) -> int:
    """Merge the CSV files of a tar.gz, keeping one header; return the number of rows."""
    import tarfile

    header, rows = "", []
    with tarfile.open(file.path) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            if member.name.endswith(".csv"):
                header, *more = tar.extractfile(member).read().decode().splitlines()
                rows += more
    with open(table.path, "w") as out:
        out.write("\n".join([header, *rows]) + "\n")
    return len(rows)
