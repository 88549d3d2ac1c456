package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

// fail is the one place where an error becomes a response. It also ends the chain of handlers. The response to a tool
// call always has the call's id and whether the device can have run it: an error that does not say so happened before
// the call was dispatched. Responses to other requests have neither. Below /v1 the response is in OpenAI's format, at
// /mcp in that of JSON-RPC.
func (h *handler) fail(c *gin.Context, err error) {
	e := *registry.AsError(err)
	if why := interrupted(c.Request.Context(), &e); why != nil {
		e.Code, e.Message, e.RetryAfter, e.Cause = why.Code, why.Message, why.RetryAfter, nil
		err = &e
	}
	if isCall(c) {
		if e.CallID == "" {
			e.CallID = notedCall(c)
		}
		if e.Dispatched == "" {
			e.Dispatched = registry.DispatchedNo
		}
		noteCall(c, e.CallID)
	} else {
		e.CallID, e.Dispatched = "", ""
	}
	p := auth.ProblemOf(&e)
	failure := e
	failure.Code = p.Code // one that clients may see
	c.Set(keyFailure, &failure)
	c.Abort()
	if isOpenAI(c.Request.URL.Path) {
		openai.WriteError(c.Writer, err)
		return
	}
	if isMCP(c.Request.URL.Path) {
		_ = mcp.WriteError(c.Writer, &e) // the client is gone if this fails
		return
	}
	_ = auth.WriteProblem(c.Writer, p) // the client is gone if this fails
}

// interrupted returns why a request came to an end before its answer, nil if its failure e has another reason. What is
// asked of the store for a client that hangs up fails, and the store is well.
func interrupted(ctx context.Context, e *registry.Error) *registry.Error {
	if ended := endedIdentity(ctx); ended != nil {
		return ended
	}
	if ctx.Err() == nil || !errors.Is(e.Cause, context.Canceled) {
		return nil
	}
	if errors.Is(context.Cause(ctx), registry.ErrDraining) {
		return draining()
	}
	return registry.Errorf(registry.CodeCancelled, "The request was cancelled because its client hung up.")
}

// isOpenAI reports whether a path is one whose clients expect OpenAI's answers.
func isOpenAI(path string) bool { return strings.HasPrefix(path, openai.Prefix) }

// isModels reports whether an error came from a model. Its turn has logged it already, without the prompt, which an
// error of a provider may repeat.
func isModels(err error) bool {
	var failed *provider.Error
	return errors.As(err, &failed)
}

// isCall reports whether the request asks for a tool to be called.
func isCall(c *gin.Context) bool {
	if c.Request.Method != http.MethodPost {
		return false
	}
	path := c.FullPath()
	return path == pathCall || path == pathSessionCall
}

// nameCall gives a call its id before anything can fail.
func (h *handler) nameCall(c *gin.Context) {
	if isCall(c) {
		noteCall(c, registry.NewCallID())
	}
}

// noteCall names the call of a response, to the client and in the log.
func noteCall(c *gin.Context, callID string) {
	header := c.Writer.Header()
	if noted := header[headerCallID]; len(noted) == 1 && noted[0] == callID {
		return
	}
	header[headerCallID] = []string{callID}
}

// notedCall returns the id of the call of a response, empty if there is none.
func notedCall(c *gin.Context) string { return c.Writer.Header().Get(headerCallID) }
