import FoundationEssentials
import StreamClient
import StreamProtocol
import StreamRuntime

extension ConfigurationReport {
  init(_ event: StreamEvent) throws(Stop) {
    do {
      self = try JSONDecoder().decode(ConfigurationReport.self, from: Data(event.data))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the configuration cannot be read")
    }
  }

  /// The text for users. Remarks on the text precede it as comments.
  var shownText: String {
    let remarks = [
      error.map { "# The previous configuration is served: \($0)" },
      restartKeys.map { "# These keys take effect after a restart: \($0.joined(separator: ", "))" },
    ]
    let lines =
      remarks.compactMap { $0 } + text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    return lines.map(\.escapedForReading).joined(separator: "\n")
  }
}
