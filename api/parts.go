package api

import (
	"encoding/base64"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// appendParts appends the parts of a result, as encoding/json writes them.
func appendParts(b []byte, parts []registry.Part) []byte {
	b = append(b, '[')
	for i := range parts {
		p := &parts[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendString(append(b, `{"type":`...), string(p.Type))
		b = strictjson.AppendString(append(b, `,"mime_type":`...), p.MIMEType)
		if p.Name != "" {
			b = strictjson.AppendString(append(b, `,"name":`...), p.Name)
		}
		if p.URI != "" {
			b = strictjson.AppendString(append(b, `,"uri":`...), p.URI)
		}
		if len(p.Data) > 0 {
			b = append(base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), p.Data), '"')
		}
		if p.URL != "" {
			b = strictjson.AppendString(append(b, `,"url":`...), p.URL)
		}
		b = append(strconv.AppendInt(append(b, `,"size":`...), p.Size, 10), '}')
	}
	return append(b, ']')
}
