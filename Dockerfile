# syntax=docker/dockerfile:1
# The compiler runs on the builder's own platform and compiles for the image's, without emulation.
FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION="" COMMIT="" TARGETOS TARGETARCH
# As .goreleaser.yaml does, so that the same Go makes the same bytes.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -tags nomsgpack \
      -ldflags "-s -w -buildid= -X main.release=${VERSION} -X main.commit=${COMMIT}" -o /farhand ./cmd/farhand && mkdir /data

# Nothing but the program: no shell, no package manager, no root.
FROM scratch
ARG VERSION="" COMMIT=""
LABEL org.opencontainers.image.title="Farhand" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" org.opencontainers.image.source="https://github.com/farhand/farhand" \
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
