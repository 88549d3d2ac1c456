package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// Limits of the images in one request to the model. The newest images are included.
const (
	maxPictures     = 8
	maxPictureBytes = 4 << 20
)

func picturesOf(parts []registry.Part) []provider.Picture {
	var pictures []provider.Picture
	for i, p := range parts {
		if p.Type != registry.PartImage || len(p.Data) == 0 {
			continue
		}
		if picture, ok := provider.NewPicture(i, p.Data); ok {
			pictures = append(pictures, picture)
		}
	}
	return pictures
}

// linked returns the parts of a result without data. Stored parts get an expiring link instead.
func (l *loop) linked(ctx context.Context, c *call, parts []registry.Part) []registry.Part {
	shown := registry.WithoutData(parts)
	if l.files == nil {
		return shown
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	for i, p := range parts {
		if len(p.Data) == 0 {
			continue
		}
		stored, err := l.files.Store(ctx, l.key, l.owner, c.id, p)
		if err != nil {
			l.log.Warn("file of a tool not stored", "tool", c.name, "call", c.id, "error", err)
			continue
		}
		shown[i] = stored
	}
	return shown
}

// forgetPictures drops the images that exceed the limits of a request, for good, because newer images follow.
func (l *loop) forgetPictures() {
	count, size := 0, 0
	for i := range slices.Backward(l.history) {
		m := &l.history[i]
		var kept []provider.Picture
		for _, p := range slices.Backward(m.Pictures) {
			count, size = count+1, size+len(p.Data)
			if count <= maxPictures && size <= maxPictureBytes {
				kept = append(kept, p)
			}
		}
		slices.Reverse(kept)
		m.Pictures = kept
	}
}

// described returns a result with one line for each of its attachments, without their bytes.
func described(m provider.Message) provider.Message {
	lines := make([]string, 0, 1+len(m.Attachments))
	if m.Content != "" {
		lines = append(lines, m.Content)
	}
	for i, a := range m.Attachments {
		unseen := ""
		shown := slices.ContainsFunc(m.Pictures, func(p provider.Picture) bool { return p.Attachment == i })
		if a.Type == registry.PartImage && !shown {
			unseen = ", not shown"
		}
		lines = append(lines, fmt.Sprintf("[%s, %s, %s%s]", a.Type, a.MIMEType, sizeText(a.Size), unseen))
	}
	m.Content = strings.Join(lines, "\n")
	return m
}

func sizeText(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.0f kB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1000/1000)
	}
}
