package blobs

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// keepTime is how long the gateway has to store a file of its own.
const keepTime = time.Minute

// Keep stores the data of a part of the result of a call, and returns the part with the address where it can be read in
// its place. Its bytes count as those of an uploaded file. CodePayloadTooLarge and CodeRateLimited if there is no room.
func (s *Service) Keep(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error) {
	p.Size = int64(len(p.Data))
	slot, err := s.Reserve(ctx, key, call, p, keepTime)
	if err != nil {
		return p, err
	}
	secret := strings.TrimPrefix(slot.URL, registry.PathUpload)
	b, err := s.Find(ctx, secret)
	if err != nil {
		return p, err
	}
	if err := s.Receive(ctx, b, p.MIMEType, p.Size, bytes.NewReader(p.Data)); err != nil {
		return p, err
	}
	p.Data, p.URL = nil, registry.PathBlob+secret
	return p, nil
}
