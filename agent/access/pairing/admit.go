package pairing

import (
	"context"
	"net/http"

	"github.com/farhand/farhand/registry"
)

// AdmitNode decides whether an OpenClaw node may connect, and as whom. The caller has checked the node's signature.
func (s *Service) AdmitNode(context.Context, *http.Request, Node) (AdmittedNode, error) {
	return AdmittedNode{}, registry.Errorf(registry.CodeInternal, "not implemented")
}
