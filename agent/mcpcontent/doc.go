// Package mcpcontent is the one mapping between the content of MCP and results of tools: Reader makes a result of what
// an MCP server answered, whether it is a device or an upstream, and Append writes a result as content for MCP clients.
//
// Text blocks are the output. Images, sounds and resources are parts, which keep their MIME type and URI. The text of a
// text resource is in the output also, because models read the output. Binary data is never in the output.
package mcpcontent
