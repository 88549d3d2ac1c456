package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// An error that crossed to another pod has its code still; its cause stays where it was.
func TestErrorsCrossPods(t *testing.T) {
	sent := StoreUnavailable("claim", fmt.Errorf("10.0.0.7: %w", io.ErrUnexpectedEOF)).With(DispatchedNo)
	if !errors.Is(sent, CodeStoreUnavailable) || !errors.Is(sent, io.ErrUnexpectedEOF) ||
		!strings.Contains(sent.Error(), "10.0.0.7") {
		t.Errorf("%v", sent)
	}
	text, err := json.Marshal(sent)
	if err != nil || strings.Contains(string(text), "10.0.0.7") {
		t.Fatalf("%s, %v", text, err)
	}
	var got *Error
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(got, CodeStoreUnavailable) || errors.Is(got, CodeTimeout) || got.Dispatched != DispatchedNo ||
		got.RetryAfter != sent.RetryAfter {
		t.Errorf("%+v", got)
	}
}

// What is no error of this program is shown as one fixed sentence.
func TestAsErrorHidesWhatItDoesNotKnow(t *testing.T) {
	if e := AsError(io.ErrUnexpectedEOF); e.Code != CodeInternal || e.Message != unknownErrorMessage ||
		!errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("%+v", e)
	}
	known := NotConnected()
	if e := AsError(fmt.Errorf("wrapped: %w", known)); e != known {
		t.Errorf("%+v", e)
	}
}

// Only a failure that may pass, of a call no device has seen, is worth asking again.
func TestRetryable(t *testing.T) {
	transient := map[Code]bool{
		CodeNotConnected: true, CodeRateLimited: true, CodeBusy: true, CodeConnectionLost: true, CodeLost: true,
		CodeStoreUnavailable: true, CodeDraining: true, CodeTimeout: true, CodeNeedsForeground: true,
	}
	for _, code := range Codes() {
		e := Errorf(code, "x")
		if got := e.With(DispatchedNo).Retryable(); got != transient[code] {
			t.Errorf("%s: %v", code, got)
		}
		if e.Retryable() || e.With(DispatchedYes).Retryable() || e.With(DispatchedUnknown).Retryable() {
			t.Errorf("%s may have reached the device, and is retryable", code)
		}
		if e.Dispatched != "" {
			t.Errorf("%s: With changed its receiver", code)
		}
	}
}
