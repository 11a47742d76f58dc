/// What the command line asks for.
enum Arguments: Equatable {
  case serve(configuration: String)
  case check(configuration: String)
  case version
  case help

  static let defaultConfiguration = "/etc/streamd/streamd.toml"

  static let usage = """
    Usage: streamd [--config FILE] [--check]

    Fetches each configured source once, keeps its last events, and shares them with
    any number of local clients over a Unix socket, each at the pace of its own credit.

      --config FILE  the configuration (default: \(defaultConfiguration))
      --check        say every mistake in the configuration, and exit: 0 none, 78 some
      --version      print the version
      --help         print this

    Signals: SIGTERM and SIGINT end every request with CANCELED and stop the daemon;
    SIGHUP applies another configuration under the clients, or refuses it whole.
    Look at a stream with: streamctl sub NAME
    """

  /// A command line that cannot be followed.
  struct UsageError: Error, Equatable {
    let sentence: String
  }

  /// - Parameter arguments: without the program's name.
  static func parse(_ arguments: [String]) throws(UsageError) -> Arguments {
    var configuration = defaultConfiguration
    var isCheck = false
    var rest = arguments[...]
    while let argument = rest.popFirst() {
      switch argument {
      case "--help", "-h": return .help
      case "--version": return .version
      case "--check": isCheck = true
      case "--config", "-c":
        guard let file = rest.popFirst() else { throw UsageError(sentence: "\(argument) needs a file") }
        configuration = file
      case _ where argument.hasPrefix("--config="): configuration = String(argument.dropFirst("--config=".count))
      default: throw UsageError(sentence: "unknown argument \"\(argument)\"; try --help")
      }
    }
    return isCheck ? .check(configuration: configuration) : .serve(configuration: configuration)
  }
}
