# Spotwright in a container: runs pipelines on macOS and Windows, where the Linux calls that runs need are missing.
#
#   podman build -t spotwright .
#   podman run --rm -it --init -v "$PWD":/project spotwright run pipeline.py
#
# The same with docker. The current folder is the project: its pipeline, spotwright.yaml and the runs in .spotwright.
# A pip configuration of your own (an index, a certificate): --secret id=pip,src=$HOME/.config/pip/pip.conf
ARG BASE=python:3.12-slim
FROM ${BASE}

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /opt/spotwright
COPY requirements/build.txt requirements/run.txt requirements/
# kfp-server-api is published as source only: the locked setuptools builds it, as in scripts/bootstrap.py.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --no-deps --require-hashes -r requirements/build.txt && \
    python -m pip install --no-deps --require-hashes --no-build-isolation --use-pep517 -r requirements/run.txt
# The page's modules come from npm: those of the clone if `make page` made them, else with an npm that pip fetches for this step.
# An npm configuration of your own: --secret id=npm,src=$HOME/.npmrc
COPY pyproject.toml README.md LICENSE setup.py package.json package-lock.json ./
COPY requirements/page.txt requirements/
COPY scripts/page_assets.py scripts/
COPY src src
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=npm,target=/root/.npmrc \
    python -m pip install --no-deps --no-build-isolation --use-pep517 . && rm -rf build

# Any user may be chosen with --user: the folders below are open to all, as /tmp is.
RUN mkdir -p -m 1777 /home/spotwright /project && \
    echo "spotwright:x:1000:1000::/home/spotwright:/bin/sh" >> /etc/passwd
ENV HOME=/home/spotwright
USER 1000:1000
VOLUME /project
WORKDIR /project
ENTRYPOINT ["spotwright"]
