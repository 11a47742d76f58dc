import RSocket
import Testing

@Suite struct MetadataFormatTests {
  @Test(arguments: MetadataFormat.allCases) func aNameSurvivesEveryFormat(format: MetadataFormat) throws {
    for name in ["clock", "$streams", "märkte/dax", String(repeating: "x", count: 255)] {
      #expect(try format.route(in: format.metadata(route: name)) == name)
    }
    #expect(MetadataFormat(mimeType: format.mimeType) == format)
  }

  @Test func mimeTypesCompareWithoutCaseUnknownOnesHaveNoFormat() {
    #expect(MetadataFormat(mimeType: "Text/Plain") == .text)
    #expect(MetadataFormat(mimeType: "application/json") == nil)
  }

  @Test func theFirstOfSeveralTagsIsTheName() throws {
    #expect(try MetadataFormat.routing.route(in: hex("03 616263 02 7879")) == "abc")
  }

  @Test func compositeMetadataMaySpellTheRoutingTypeOutAndMayHoldOtherEntriesBeforeIt() throws {
    let spelled = [UInt8(27)] + Array("message/x.rsocket.routing.v0".utf8)
    let other = [UInt8(2)] + Array("a/b".utf8) + [0, 0, 2, 9, 9]
    #expect(try MetadataFormat.composite.route(in: other + hex("85 000001 7b") + spelled + hex("000002 0161")) == "a")
    #expect(try MetadataFormat.composite.metadata(route: "a") == hex("fe 000002 01 61"))
  }

  @Test(
    arguments: [
      (.routing, nil, "the request has no metadata to name a stream"),
      (.routing, "", "the routing metadata has no tag"),
      (.routing, "00", "the stream's name is empty"),
      (.routing, "0361", "the routing metadata ends inside its first tag"),
      (.routing, "01ff", "the stream's name is not UTF-8"),
      (.text, "", "the stream's name is empty"),
      (.composite, "", "the composite metadata has no routing entry"),
      (.composite, "85 000001 7b", "the composite metadata has no routing entry"),
      (.composite, "fe 0000", "the composite metadata ends inside an entry"),
      (.composite, "fe 000002 01", "the composite metadata ends inside an entry"),
      (.composite, "7f 61", "the composite metadata ends inside an entry"),
      (.composite, "fe 000000", "the routing metadata has no tag"),
    ] as [(MetadataFormat, String?, String)])
  func metadataThatNamesNothingIsAnErrorThatSaysWhy(format: MetadataFormat, metadata: String?, message: String) {
    let error = #expect(throws: RoutingError.self) { try format.route(in: metadata.map(hex)) }
    #expect(error?.message == message)
  }

  @Test func aTagHoldsNoMoreThan255Bytes() throws {
    let name = String(repeating: "x", count: 256)
    #expect(throws: RoutingError.self) { try MetadataFormat.routing.metadata(route: name) }
    #expect(throws: RoutingError.self) { try MetadataFormat.composite.metadata(route: name) }
    #expect(try MetadataFormat.text.metadata(route: name).count == 256)
  }
}
