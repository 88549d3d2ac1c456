package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

type object = map[string]any

// schemas makes the schemas of the OpenAPI document from the source of package wire, which says how.
type schemas struct {
	t     *testing.T
	types map[string]goType   // by package and name, as wire.Tool
	names map[string]string   // the aliases in package wire, by what they are: registry.Code is ErrorCode
	enums map[string][]string // the values of types of texts
	used  map[string]bool     // types that the document has
	made  object              // the schemas by their names
}

// goType is a type and its comment.
type goType struct {
	*ast.TypeSpec
	doc *ast.CommentGroup
}

const schemaRef = "#/components/schemas/"

// openAPISchemas returns the text of api/openapi/schemas.json.
func openAPISchemas(t *testing.T) string {
	t.Helper()
	g := &schemas{
		t: t, types: make(map[string]goType), names: make(map[string]string), used: make(map[string]bool),
		made: make(object),
		enums: map[string][]string{
			"wire.AuditAction": registry.AuditActions(), "wire.AuditOutcome": registry.AuditOutcomes(),
		},
	}
	for _, folder := range []string{"api/wire", "registry", "agent/access/auth"} {
		g.load("../../" + folder)
	}
	g.enums["registry.Code"] = nil // clients do not get all of its constants
	for _, code := range registry.Codes() {
		g.enums["registry.Code"] = append(g.enums["registry.Code"], string(code))
	}
	slices.Sort(g.enums["registry.Code"])
	var additions map[string]object
	const patch = "../../api/wire/additions.json"
	if err := json.Unmarshal(g.read(patch), &additions); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	refs := regexp.MustCompile(schemaRef + "([A-Za-z]+)")
	for _, path := range []string{
		"../../api/openapi/paths.json", "../../api/openapi/parameters.json", "../../api/openapi/components.json",
		"../../api/openapi.go", patch,
	} {
		for _, m := range refs.FindAllSubmatch(g.read(path), -1) {
			g.component(string(m[1]))
		}
	}
	for name, patch := range additions {
		if made, ok := g.made[name].(object); ok {
			apply(made, patch)
		} else {
			g.made[name] = patch
		}
	}
	for name, spec := range g.types {
		if strings.HasPrefix(name, "wire.") && spec.Name.IsExported() && !g.used[name] {
			t.Errorf("%s is nowhere in the OpenAPI document", name)
		}
	}
	return g.text()
}

func (g *schemas) read(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		g.t.Fatal(err)
	}
	return text
}

// text writes each schema on a line of its own.
func (g *schemas) text() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(g.made)) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(g.made[name]); err != nil {
			g.t.Fatal(err)
		}
		lines = append(lines, strconv.Quote(name)+": "+strings.TrimSpace(b.String()))
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n}\n"
}

// load reads the types of a package, and the values of its types of texts.
func (g *schemas) load(folder string) {
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		g.t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, decl := range file.Decls {
			decl, _ := decl.(*ast.GenDecl)
			if decl == nil {
				continue
			}
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := spec.Doc
					if doc == nil {
						doc = decl.Doc
					}
					g.types[file.Name.Name+"."+spec.Name.Name] = goType{spec, doc}
					if other, ok := spec.Type.(*ast.SelectorExpr); ok && other.X.(*ast.Ident).Name == "registry" {
						g.names["registry."+other.Sel.Name] = spec.Name.Name
					}
				case *ast.ValueSpec:
					g.value(file.Name.Name, spec)
				}
			}
		}
	}
}

// value notes a constant that is a value of a type of texts.
func (g *schemas) value(pkg string, spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	if text, ok := spec.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
		if value, _ := strconv.Unquote(text.Value); value != "" {
			g.enums[pkg+"."+kind.Name] = append(g.enums[pkg+"."+kind.Name], value)
		}
	}
}

// component makes the schema with a name, and returns a reference to it.
func (g *schemas) component(name string) object {
	from := "wire"
	if name == "Problem" {
		from = "auth"
	}
	_, made := g.made[name]
	if _, known := g.types[from+"."+name]; known && !made {
		g.made[name] = object{} // for types that have themselves
		t := g.find(from, ast.NewIdent(name))
		made := g.schema(from, t.Type, nil)
		if other, ok := t.Type.(*ast.SelectorExpr); ok {
			made = g.described(other.X.(*ast.Ident).Name, other.Sel.Name)
		}
		if values := g.enums[from+"."+name]; values != nil {
			made["enum"] = values
		}
		if text := sentence(t.doc, name); text != "" {
			made["description"] = text
		}
		g.constrain(made, directives(t.doc))
		g.made[name] = made
	}
	return object{"$ref": schemaRef + name}
}

// schema returns the schema of a type that the source of package pkg names. env has its type parameters.
func (g *schemas) schema(pkg string, e ast.Expr, env map[string]ast.Expr) object {
	switch e := e.(type) {
	case *ast.Ident:
		if known := env[e.Name]; known != nil {
			return g.schema(pkg, known, nil)
		}
		return g.named(pkg, e.Name)
	case *ast.SelectorExpr:
		return g.named(e.X.(*ast.Ident).Name, e.Sel.Name)
	case *ast.StarExpr:
		return g.schema(pkg, e.X, env)
	case *ast.ArrayType:
		if elem, ok := e.Elt.(*ast.Ident); ok && elem.Name == "byte" {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": g.schema(pkg, e.Elt, env)}
	case *ast.MapType:
		return object{"type": "object", "additionalProperties": g.schema(pkg, e.Value, env)}
	case *ast.StructType:
		return g.object(pkg, e, env)
	case *ast.IndexExpr:
		generic := g.find(pkg, e.X)
		return g.schema(pkg, generic.Type, map[string]ast.Expr{generic.TypeParams.List[0].Names[0].Name: e.Index})
	}
	g.t.Fatalf("no schema for %T of package %s", e, pkg)
	return nil
}

// named returns the schema of a type with a name: a reference, if the document has that name also.
func (g *schemas) named(pkg, name string) object {
	if alias := g.names[pkg+"."+name]; alias != "" {
		return g.component(alias)
	}
	if t, ok := g.types[pkg+"."+name]; ok && pkg == "wire" && !slices.Contains(directives(t.doc), "inline") {
		return g.component(name)
	}
	return g.described(pkg, name)
}

// described returns the schema of a type where it is used.
func (g *schemas) described(pkg, name string) object {
	kinds := map[string]string{
		"string": "string", "bool": "boolean", "int": "integer", "int64": "integer", "float64": "number",
	}
	switch {
	case pkg+"."+name == "json.RawMessage", pkg+"."+name == "registry.JSON":
		return object{}
	case pkg+"."+name == "time.Time":
		return object{"type": "string", "format": "date-time"}
	case kinds[name] != "":
		return object{"type": kinds[name]}
	case g.enums[pkg+"."+name] != nil:
		return object{"type": "string", "enum": g.enums[pkg+"."+name]}
	}
	return g.schema(pkg, g.find(pkg, ast.NewIdent(name)).Type, nil)
}

// find returns the type that an expression names.
func (g *schemas) find(pkg string, e ast.Expr) goType {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		pkg, e = selector.X.(*ast.Ident).Name, selector.Sel
	}
	name := pkg + "." + e.(*ast.Ident).Name
	t, ok := g.types[name]
	if !ok {
		g.t.Fatalf("no type %s was found", name)
	}
	g.used[name] = true
	return t
}

// object returns the schema of a struct. Fields of embedded structs are its own, unless it has them itself.
func (g *schemas) object(pkg string, s *ast.StructType, env map[string]ast.Expr) object {
	properties, required := make(object), make(map[string]bool)
	for _, f := range s.Fields.List {
		if len(f.Names) > 0 {
			continue
		}
		from := pkg
		if selector, ok := f.Type.(*ast.SelectorExpr); ok {
			from = selector.X.(*ast.Ident).Name
		}
		inner := g.object(from, g.find(pkg, f.Type).Type.(*ast.StructType), nil)
		maps.Copy(properties, inner["properties"].(object))
		always, _ := inner["required"].([]string)
		for _, name := range always {
			required[name] = true
		}
	}
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 || !f.Names[0].IsExported() {
			continue
		}
		var tag reflect.StructTag
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		}
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		switch name {
		case "-":
			continue
		case "":
			g.t.Errorf("the field %s of package %s has no name in JSON", f.Names[0].Name, pkg)
		}
		properties[name], required[name] = g.property(pkg, f, tag.Get("schema"), options != "", env), options == ""
	}
	maps.DeleteFunc(required, func(_ string, required bool) bool { return !required })
	made := object{"type": "object"}
	if len(properties) > 0 {
		made["properties"] = properties
	}
	if len(required) > 0 {
		made["required"] = slices.Sorted(maps.Keys(required))
	}
	return made
}

// property returns the schema of a field.
func (g *schemas) property(pkg string, f *ast.Field, tag string, optional bool, env map[string]ast.Expr) object {
	made := g.schema(pkg, f.Type, env)
	if tag != "" {
		g.constrain(made, strings.Split(tag, ","))
	}
	pointer, null := f.Type.(*ast.StarExpr)
	if null && optional {
		_, null = pointer.X.(*ast.StarExpr)
	}
	switch {
	case null && made["$ref"] != nil:
		made = object{"anyOf": []any{made, object{"type": "null"}}}
	case null:
		made["type"] = []any{made["type"], "null"}
	}
	doc := f.Doc
	if doc == nil {
		doc = f.Comment
	}
	if text := sentence(doc, f.Names[0].Name); text != "" {
		made["description"] = text
	}
	return made
}

// constrain adds what tags and directives say. What is said of a list holds for its elements, but for their number.
func (g *schemas) constrain(made object, rules []string) {
	for _, rule := range rules {
		key, value, _ := strings.Cut(rule, "=")
		at := made
		if items, ok := made["items"].(object); ok && key != "minItems" && key != "maxItems" {
			at = items
		}
		number, err := strconv.Atoi(value)
		switch {
		case key == "inline":
		case key == "closed", key == "open":
			at["additionalProperties"] = key == "open"
		case key == "enum":
			var values []any
			for text := range strings.SplitSeq(value, "|") {
				var v any = text
				if at["type"] != "string" {
					_ = json.Unmarshal([]byte(text), &v) // a number, true or false
				}
				values = append(values, v)
			}
			if before, ok := at["enum"].([]any); ok {
				values = append(before, values...)
			}
			at["enum"] = values
		case err == nil:
			at[key] = number
		default:
			at[key] = value
		}
	}
}

// directives returns the lines //schema: of a comment.
func directives(doc *ast.CommentGroup) (rules []string) {
	if doc == nil {
		return nil
	}
	for _, line := range doc.List {
		if rule, ok := strings.CutPrefix(line.Text, "//schema:"); ok {
			rules = append(rules, rule)
		}
	}
	return rules
}

// sentence returns what a comment says of the thing with a name, as a sentence.
func sentence(doc *ast.CommentGroup, name string) string {
	text := strings.Join(strings.Fields(doc.Text()), " ")
	text = regexp.MustCompile("^"+name+"(:| is| are| has| have) ").ReplaceAllString(text, "")
	if text == "" {
		return ""
	}
	if !regexp.MustCompile("^[a-z_]+:").MatchString(text) {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.ContainsAny(text[len(text)-1:], ".:") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// apply changes a schema as RFC 7396 says.
func apply(to, patch object) {
	for key, value := range patch {
		inner, isObject := value.(object)
		before, wasObject := to[key].(object)
		switch {
		case value == nil:
			delete(to, key)
		case isObject && wasObject:
			apply(before, inner)
		default:
			to[key] = value
		}
	}
}
