import Testing

@testable import StreamSources

@Suite struct WallTimeTests {
  @Test(arguments: [
    (0, "1970-01-01T00:00:00.000Z"), (1_767_323_045_678, "2026-01-02T03:04:05.678Z"),
    (951_782_400_009, "2000-02-29T00:00:00.009Z"), (-1, "1969-12-31T23:59:59.999Z"),
    (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
  ])
  func aTimeIsWrittenAsRFC3339InUTC(milliseconds: Int, text: String) {
    #expect(WallTime(milliseconds: milliseconds).description == text)
  }

  @Test func theCurrentTimeIsPlausible() {
    #expect(WallTime.now.milliseconds > 1_763_000_000_000)
  }
}
