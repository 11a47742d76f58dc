import Glibc
import Testing

@testable import StreamProtocol

/// Which names a pattern fits.
@Suite struct NamePatternTests {
  @Test func aStarStandsForAnyCharactersAlsoForSlashesAndNone() throws {
    let pattern = try #require(NamePattern("sensors/*"))
    #expect(pattern.fits("sensors/a") && pattern.fits("sensors/hall/3") && pattern.fits("sensors/"))
    #expect(!pattern.fits("sensors") && !pattern.fits("sensor/a") && !pattern.fits("my/sensors/a"))
    #expect(pattern.prefix == Array("sensors/".utf8))
  }

  @Test func aPatternFitsNoSystemStream() {
    #expect(NamePattern("*")?.fits("$stats") == false && NamePattern("$*")?.fits("$stats") == false)
    #expect(NamePattern("*")?.fits("") == false && NamePattern("*")?.fits("a") == true)
  }

  @Test func aTextWithoutAStarAndOneThatIsTooLongAreNoPatterns() {
    #expect(NamePattern("sensors/a") == nil && NamePattern("") == nil)
    #expect(NamePattern(String(repeating: "*", count: 256)) == nil)
    #expect(NamePattern(String(repeating: "*", count: 255))?.fits("a") == true)
  }

  @Test func aPatternFitsWhatTheSystemsPatternsFit() {
    var generator = SystemRandomNumberGenerator()
    func text(_ letters: [Character], upTo count: Int) -> String {
      String((0..<Int.random(in: 0...count, using: &generator)).map { _ in letters.randomElement(using: &generator)! })
    }
    for _ in 0..<50_000 {
      let (pattern, name) = (text(["a", "b", "*"], upTo: 8), text(["a", "b"], upTo: 10))
      guard let fitting = NamePattern(pattern), !name.isEmpty else { continue }
      #expect(fitting.fits(name) == (fnmatch(pattern, name, 0) == 0), "\(pattern) \(name)")
    }
  }
}
