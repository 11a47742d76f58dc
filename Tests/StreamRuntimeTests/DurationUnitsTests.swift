import Testing

@testable import StreamRuntime

struct DurationUnitsTests {
  @Test(arguments: [
    (Duration.microseconds(1500), 1_500_000, 1500, 1), (.nanoseconds(-1_999_999), -1_999_999, -1999, -1),
    (.zero, 0, 0, 0),
  ])
  func durationsAreRoundedDownToWholeUnits(duration: Duration, nanoseconds: Int, microseconds: Int, milliseconds: Int) {
    #expect(duration.wholeNanoseconds == nanoseconds)
    #expect(duration.wholeMicroseconds == microseconds)
    #expect(duration.wholeMilliseconds == milliseconds)
  }

  @Test(arguments: [(Duration.seconds(Int64.max), Int.max), (.seconds(Int64.min), Int.min)])
  func overflowIsClampedToTheNearestValue(duration: Duration, number: Int) {
    #expect(duration.wholeNanoseconds == number)
    #expect(duration.wholeMicroseconds == number)
    #expect(duration.wholeMilliseconds == number)
  }
}
