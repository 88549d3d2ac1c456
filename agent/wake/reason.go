package wake

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// The reasons of pushes without an answer. Users choose URLs and see the reasons, so these tell neither to which
// address a name resolves in the gateway's network nor why a connection failed.
const (
	reasonNotAllowed  = "the URL leads to an address that is not allowed"
	reasonTimeout     = "the push service did not answer in time"
	reasonCertificate = "the certificate of the push service is not valid"
	reasonUnreachable = "the push service could not be reached"
	reasonImpossible  = "the push could not be made"
)

// serviceError is a failure of a push service that the operator configured, with a text for users.
type serviceError struct {
	text  string
	cause error // may be nil
}

func (e *serviceError) Error() string {
	if e.cause == nil {
		return e.text
	}
	return e.text + ": " + e.cause.Error()
}

// failure is the result without an answer.
func failure(err error) result {
	if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text has the URL, which is a secret
		err = wrapped.Err
	}
	return result{outcome: Retry, reason: reasonOf(err), cause: err}
}

// refused is the result of a push that cannot be made.
func refused(err error) result {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return result{outcome: Refused, reason: reasonImpossible, cause: err}
}

func reasonOf(err error) string {
	if of, ok := errors.AsType[*serviceError](err); ok {
		return of.text
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return reasonCertificate
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return reasonTimeout
	}
	switch {
	case errors.Is(err, publicnet.ErrRefused):
		return reasonNotAllowed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return reasonTimeout
	default:
		return reasonUnreachable
	}
}

const maxCause = 300 // bytes

// logged returns the cause of a result for the log, empty if there is none. The other side may have chosen its text:
// the names of its certificate.
func (r result) logged() string {
	if r.cause == nil {
		return ""
	}
	text := registry.TruncateText(r.cause.Error(), 4*maxCause)
	return registry.TruncateText(textsafe.Line(text), maxCause)
}
