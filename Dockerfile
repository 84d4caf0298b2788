# llmfair in a container, answers asked of a server elsewhere. Runs go to /work:
#   docker build -t llmfair . && docker run --rm -v "$PWD:/work" llmfair listwise
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /llmfair/
COPY llmfair /llmfair/llmfair
COPY prompts /llmfair/prompts
COPY data /llmfair/data
RUN pip install --no-cache-dir /llmfair
# In here all belongs to root, and outside to nobody in particular.
ENV LLMFAIR_SHARED=1
WORKDIR /work
ENTRYPOINT ["llmfair"]
