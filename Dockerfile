# The image: Lastcall as its lock has it, on Debian's Python, as a user without rights. docs/operations.md says how to build and run it.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/lastcall
ENV PATH=/opt/lastcall/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.txt .
RUN pip install --require-hashes --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
RUN pip install --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin lastcall
COPY --from=build /opt/lastcall /opt/lastcall
ENV PATH=/opt/lastcall/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /etc/lastcall
EXPOSE 4000
# SIGTERM lets streams under way end: give it longer than `docker stop` does by itself.
ENTRYPOINT ["lastcall"]
CMD ["serve", "--host", "0.0.0.0"]
