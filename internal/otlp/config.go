package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Protocols of OTLP.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// Config is what the standard variables of OpenTelemetry say. LoadConfig makes it.
type Config struct {
	endpoint string // URL that spans are sent to; empty: traces are off
	protocol string
	headers  http.Header
	tls      *tls.Config
	gzip     bool
	timeout  time.Duration // of one export, with its retries

	sampler  trace.Sampler
	service  string
	resource []attribute.KeyValue

	delay    time.Duration // the longest time from one export to the next
	limit    time.Duration // of one export, as OTEL_BSP_EXPORT_TIMEOUT
	maxQueue int           // spans
	maxBatch int           // spans
}

// On reports whether traces are exported.
func (c Config) On() bool { return c.endpoint != "" }

// maxQueued is the maximum of OTEL_BSP_MAX_QUEUE_SIZE. A span takes at most about 16 KiB.
const maxQueued = 1 << 16

// LoadConfig reads the OTEL_ variables of an environment. Traces are off unless an endpoint is set, or
// OTEL_TRACES_EXPORTER is otlp. Variables that end on TRACES_ and a name have precedence. Unlike the specification of
// OpenTelemetry asks for, a value that has no meaning is an error: without it, the mistake would show as missing
// traces.
func LoadConfig(environ []string) (Config, error) {
	e := env{values: make(map[string]string, len(environ))}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			e.values[name] = strings.TrimSpace(value)
		}
	}
	exporter := e.oneOf("OTEL_TRACES_EXPORTER", "", "otlp", "none")
	disabled := strings.EqualFold(e.values["OTEL_SDK_DISABLED"], "true")
	if disabled || exporter == "none" || exporter == "" && e.signal("ENDPOINT") == "" {
		return Config{}, errors.Join(e.errs...)
	}
	c := Config{
		protocol: e.oneOf(e.signalName("PROTOCOL"), protocolHTTP, protocolHTTP, protocolGRPC),
		headers:  make(http.Header),
		gzip:     e.oneOf(e.signalName("COMPRESSION"), "none", "none", "gzip") == "gzip",
		timeout:  e.millis(e.signalName("TIMEOUT"), 10*time.Second),
		delay:    e.millis("OTEL_BSP_SCHEDULE_DELAY", 5*time.Second),
		limit:    e.millis("OTEL_BSP_EXPORT_TIMEOUT", 30*time.Second),
		maxQueue: e.count("OTEL_BSP_MAX_QUEUE_SIZE", 2048, maxQueued),
		service:  e.values["OTEL_SERVICE_NAME"],
	}
	c.maxBatch = min(e.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, maxQueued), c.maxQueue)
	c.sampler = e.sampler()
	c.endpoint = e.endpoint(c.protocol)
	for _, p := range e.pairs(e.signalName("HEADERS")) {
		c.headers.Add(p[0], p[1])
	}
	for _, p := range e.pairs("OTEL_RESOURCE_ATTRIBUTES") {
		if p[0] == "service.name" {
			c.service = cmp.Or(c.service, p[1])
			continue
		}
		c.resource = append(c.resource, attribute.String(p[0], p[1]))
	}
	c.service = cmp.Or(c.service, "farhand")
	c.tls = e.tls()
	return c, errors.Join(e.errs...)
}

// env reads variables and collects the errors.
type env struct {
	values map[string]string
	errs   []error
}

func (e *env) fail(name, format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...)))
}

// signalName returns the name of the variable of the exporter that is set: that of traces, else that of all signals.
func (e *env) signalName(name string) string {
	if own := "OTEL_EXPORTER_OTLP_TRACES_" + name; e.values[own] != "" {
		return own
	}
	return "OTEL_EXPORTER_OTLP_" + name
}

func (e *env) signal(name string) string { return e.values[e.signalName(name)] }

func (e *env) oneOf(name, otherwise string, allowed ...string) string {
	value := cmp.Or(strings.ToLower(e.values[name]), otherwise)
	for _, a := range allowed {
		if value == a {
			return value
		}
	}
	if value != "" {
		e.fail(name, "%q is not supported; use one of %s", value, strings.Join(allowed, ", "))
	}
	return otherwise
}

func (e *env) count(name string, otherwise, most int) int {
	value := e.values[name]
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		e.fail(name, "%q is not a number from 1 to %d", value, most)
		return otherwise
	}
	return n
}

func (e *env) millis(name string, otherwise time.Duration) time.Duration {
	const day = 24 * 60 * 60 * 1000
	return time.Duration(e.count(name, int(otherwise.Milliseconds()), day)) * time.Millisecond
}

// pairs reads a list such as a=b,c=d%2Ce.
func (e *env) pairs(name string) (all [][2]string) {
	for part := range strings.SplitSeq(e.values[name], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			e.fail(name, "write a list such as key=value,key2=value2") // the value may be a secret
			return nil
		}
		all = append(all, [2]string{key, value})
	}
	return all
}

// endpoint returns the URL of the requests. OTEL_EXPORTER_OTLP_ENDPOINT is that of all signals, to which HTTP adds a
// path.
func (e *env) endpoint(protocol string) string {
	name := e.signalName("ENDPOINT")
	usual := "http://localhost:4318"
	if protocol == protocolGRPC {
		usual = "http://localhost:4317"
	}
	u, err := url.Parse(cmp.Or(e.values[name], usual))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		e.fail(name, "must be a URL such as %s", usual)
		return ""
	}
	switch {
	case protocol == protocolGRPC:
		u.Path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	case !strings.Contains(name, "TRACES"):
		u = u.JoinPath("v1/traces")
	case u.Path == "":
		u.Path = "/"
	}
	return u.String()
}

// sampler returns the sampler of OTEL_TRACES_SAMPLER.
func (e *env) sampler() trace.Sampler {
	const name, argument = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	kind := e.oneOf(name, "parentbased_always_on", "always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	ratio := 1.0
	if value := e.values[argument]; value != "" && strings.HasSuffix(kind, "ratio") {
		var err error
		if ratio, err = strconv.ParseFloat(value, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			e.fail(argument, "%q is not a number from 0 to 1", value)
		}
	}
	switch kind {
	case "always_on":
		return trace.AlwaysSample()
	case "always_off":
		return trace.NeverSample()
	case "traceidratio":
		return ownIDs{trace.TraceIDRatioBased(ratio)}
	case "parentbased_always_off":
		return trace.ParentBased(trace.NeverSample())
	case "parentbased_traceidratio":
		return trace.ParentBased(trace.TraceIDRatioBased(ratio))
	default:
		return trace.ParentBased(trace.AlwaysSample())
	}
}

// tls returns the TLS configuration; nil: the default.
func (e *env) tls() *tls.Config {
	authority, certificate := e.signalName("CERTIFICATE"), e.signalName("CLIENT_CERTIFICATE")
	key := e.signalName("CLIENT_KEY")
	if e.values[authority] == "" && e.values[certificate] == "" && e.values[key] == "" {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := e.values[authority]; file != "" {
		c.RootCAs = x509.NewCertPool()
		if text, err := os.ReadFile(file); err != nil {
			e.fail(authority, "%w", err)
		} else if !c.RootCAs.AppendCertsFromPEM(text) {
			e.fail(authority, "%s has no certificate in PEM", file)
		}
	}
	if e.values[certificate] != "" || e.values[key] != "" {
		pair, err := tls.LoadX509KeyPair(e.values[certificate], e.values[key])
		if err != nil {
			e.fail(certificate, "%w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
