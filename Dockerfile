# syntax=docker/dockerfile:1
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -tags nomsgpack -ldflags "-s -w -X main.release=${VERSION}" -o /farhand ./cmd/farhand && mkdir /data

# Nothing but the program: no shell, no package manager, no root.
FROM scratch
ARG VERSION=""
LABEL org.opencontainers.image.title="Farhand" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /farhand /farhand
# Without Redis, the state file is here: mount a volume.
COPY --from=build --chown=65532:65532 /data /data
ENV FARHAND_DATA_DIR=/data
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=10s --retries=3 CMD ["/farhand", "health"]
ENTRYPOINT ["/farhand"]
CMD ["serve"]
