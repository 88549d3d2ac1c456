package wire

// Key is an API key, without the key itself.
type Key struct {
	ID string `json:"id"` // names the key; it is not secret
	KeyAttributes
}

// CreatedKey is the answer to the creation of an API key.
type CreatedKey struct {
	ID  string `json:"id"`                                         // names the key; it is not secret
	Key string `json:"key" schema:"pattern=^fhk_[0-9A-Za-z]{49}$"` // the key itself, shown this once
	KeyAttributes
}

// KeyAttributes are the attributes of an API key.
type KeyAttributes struct {
	Tenant    string   `json:"tenant"`
	Name      string   `json:"name,omitempty"` // for people
	Roles     []string `json:"roles" schema:"enum=device|caller|approver|admin"`
	UserID    string   `json:"user_id,omitempty"`
	DeviceID  string   `json:"device_id,omitempty"`
	Tools     string   `json:"tools,omitempty"`
	Context   string   `json:"context,omitempty"`
	Person    bool     `json:"person,omitempty"` // a person's program makes its calls over MCP. Absent: a model does
	CreatedAt Time     `json:"created_at"`
	CreatedBy string   `json:"created_by,omitempty"`   // the credential that made it
	ExpiresAt Time     `json:"expires_at,omitempty"`   // Absent: when it was not used for 400 days
	LastUsed  Time     `json:"last_used_at,omitempty"` // about; absent: never
}

// KeyList is a page of the API keys, the oldest first.
type KeyList struct {
	Keys       []Key      `json:"keys"`
	NextCursor NextCursor `json:"next_cursor,omitempty"`
}

// KeyRequest is a request for an API key.
//
//schema:closed
type KeyRequest struct {
	Name  string   `json:"name,omitempty" schema:"maxLength=256"`                      // for people
	Roles []string `json:"roles,omitempty" schema:"enum=device|caller|approver|admin"` // Default: caller

	// Whose key it is. Absent: it has no user.
	UserID string `json:"user_id,omitempty" schema:"maxLength=256"`

	// The only device_id that a device with the key may have.
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// Globs over names of tools, separated by spaces. Absent: all.
	Tools string `json:"tools,omitempty" schema:"maxLength=4096"`

	// Who takes part in the conversations it opens. Default: main.
	Context string `json:"context,omitempty" schema:"enum=main|group|group sandboxed"`

	// Another tenant than the caller's: for FARHAND_TOKEN only.
	Tenant string `json:"tenant,omitempty"`

	// Whether a person's program makes its calls over MCP. Default: false, they count as a model's.
	Person bool `json:"person,omitempty"`

	ExpiresAt string `json:"expires_at,omitempty" schema:"format=date-time"`
	ExpiresIn int64  `json:"expires_in,omitempty" schema:"minimum=1"` // seconds; in place of expires_at
}

// Revocation: exactly one of them.
//
//schema:closed
//schema:minProperties=1
//schema:maxProperties=1
type Revocation struct {
	UserID   string `json:"user_id,omitempty" schema:"maxLength=256"`
	DeviceID string `json:"device_id,omitempty" schema:"maxLength=256"`

	// As audit and listings name it, key:… or device:…, or its id.
	Credential string `json:"credential,omitempty" schema:"maxLength=256"`

	JTI string `json:"jti,omitempty" schema:"maxLength=256"` // the id of a JSON Web Token
}

// Revoked is the answer to a revocation.
type Revoked struct {
	Credentials int `json:"credentials"` // how many credentials were removed
}

// ProtectedResource is the metadata of the MCP endpoint, in the form of RFC 9728.
type ProtectedResource struct {
	Resource string   `json:"resource"` // the URL to ask the authorization server for a token for
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
	Name     string   `json:"resource_name"`
}
