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

  @Test(arguments: [
    (Duration.zero, "0 ms"), (.seconds(-1), "0 ms"), (.nanoseconds(1), "1 ms"), (.milliseconds(20), "20 ms"),
    (.milliseconds(999), "999 ms"), (.milliseconds(1000), "1 s"), (.milliseconds(1049), "1 s"),
    (.milliseconds(1050), "1.1 s"), (.milliseconds(1340), "1.3 s"), (.milliseconds(1960), "2 s"),
    (.milliseconds(9949), "9.9 s"), (.milliseconds(9950), "10 s"), (.milliseconds(41_500), "42 s"),
    (.milliseconds(119_499), "119 s"), (.seconds(120), "2 min"), (.seconds(150), "2.5 min"), (.seconds(600), "10 min"),
    (.seconds(3600), "1 h"), (.seconds(5400), "1.5 h"), (.milliseconds(86_400_040), "1 day"),
    (.seconds(129_600), "1.5 days"),
    (.seconds(31_536_000), "365 days"),
  ])
  func aTimeForPeopleIsRoundedAndNeverNothing(duration: Duration, text: String) {
    #expect(duration.inWords == text)
  }

  @Test(arguments: [(Duration.seconds(Int64.max), Int.max), (.seconds(Int64.min), Int.min)])
  func overflowIsClampedToTheNearestValue(duration: Duration, number: Int) {
    #expect(duration.wholeNanoseconds == number)
    #expect(duration.wholeMicroseconds == number)
    #expect(duration.wholeMilliseconds == number)
  }
}
