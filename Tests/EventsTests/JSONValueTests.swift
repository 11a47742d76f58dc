import Testing

@testable import Events

@Suite struct JSONValueTests {
  private static func value(_ text: String) throws -> JSONValue { try #require(JSONValue(Array(text.utf8))) }

  @Test(arguments: ["", " ", "{", "[1,]", "1 2", "{\"a\"}", "\"\u{1}\"", "nul"]) func otherTextIsNoValue(text: String) {
    #expect(JSONValue(Array(text.utf8)) == nil)
  }

  @Test func membersAreThoseOfTheTextInItsOrder() throws {
    let value = try Self.value(#" { "b" : [1, {"x":"]"}] , "a":{}, "b":null,"\u0061":-1.5e3 } "#)
    let members = try #require(value.members).map { ($0.string, String(decoding: $1.bytes, as: UTF8.self)) }
    #expect(members.map(\.0) == ["b", "a", "b", "a"])
    #expect(members.map(\.1) == [#"[1, {"x":"]"}]"#, "{}", "null", "-1.5e3"])
  }

  @Test func elementsAreThoseOfTheText() throws {
    let elements = try #require(try Self.value(#"[ "a\"" , [] , true,{"a":[1]} ]"#).elements)
    #expect(elements.map { String(decoding: $0.bytes, as: UTF8.self) } == [#""a\"""#, "[]", "true", #"{"a":[1]}"#])
    #expect(try #require(try Self.value("[ ]").elements).map(\.kind) == [])
  }

  @Test func valuesOfOtherKindsAreNil() throws {
    for text in ["1", "\"{}\"", "[]", "null"] { #expect(try Self.value(text).members == nil) }
    for text in ["1", "\"[]\"", "{}", "null"] { #expect(try Self.value(text).elements == nil) }
    for text in ["1", "\"true\"", "null"] { #expect(try Self.value(text).flag == nil) }
    #expect(try Self.value(" false").flag == false)
    #expect(try Self.value("1").string == nil)
    #expect(try Self.value(#""\ud800""#).string == nil)
    #expect(try Self.value(#" "\u00e9" "#).string == "é")
  }

  @Test func deepestTextIsReadToItsEnd() throws {
    var text = String(repeating: #"{"a":"#, count: JSONSyntax.depthLimit - 1) + "{}"
    text += String(repeating: "}", count: JSONSyntax.depthLimit - 1)
    var (value, depth) = (try Self.value(text), 0)
    while let member = value.members?.map({ $0 }).first { (value, depth) = (member.value, depth + 1) }
    #expect(depth == JSONSyntax.depthLimit - 1)
  }
}
