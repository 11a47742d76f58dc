extension ConfigurationReader {
  /// Reads `exec`.
  ///
  /// - Returns: `nil`, after recording an error, without a program to run.
  func exec(_ table: ConfigurationTable) -> Configuration.Exec? {
    let command = command(table)
    var exec = Configuration.Exec(command: command ?? [])
    exec.environment = table.table("environment", environment) ?? []
    exec.maxLineBytes = table.value("max_line", .size(1...1 << 30))
    return command == nil ? nil : exec
  }

  private func command(_ table: ConfigurationTable) -> [String]? {
    let form = #"a list such as ["sensor", "--json"] (no shell is used)"#
    guard table.holds("command") else {
      table.addError("expected command, \(form), got none", lacking: ["command"])
      return nil
    }
    guard table.text("command") == nil else {
      table.expected(form, at: "command", secret: true)
      return nil
    }
    let words = table.values("command", .text("a string without NUL") { !$0.utf8.contains(0) }, secret: true)
    guard let program = words?.first else { return words }
    if program.isEmpty {
      table.addError("expected the name of a program first, got \"\"", at: "command")
    } else if checksPrograms, let reason = ProgramSearch.failure(of: program) {
      table.addError("expected a program that can be run, got \(reason)", at: "command")
    }
    return words
  }

  private func environment(_ table: ConfigurationTable) -> [Configuration.Variable] {
    table.keys.compactMap { name in
      if !isVariableName(name) {
        table.addError("expected a name of letters, digits and \"_\", not a digit first", at: name)
      }
      return variable(name, table).map { Configuration.Variable(name: name, value: $0) }
    }
  }

  private func variable(_ name: String, _ table: ConfigurationTable) -> Configuration.Header.Value? {
    guard let text = table.text(name) else {
      return table.table(name, expecting: "a string or { credential = \"name\" }", secret).map { .secret($0) }
    }
    guard !text.utf8.contains(0) else {
      table.expected("a string without NUL", at: name, secret: true)
      return nil
    }
    return .plain(text)
  }

  /// A portable name of POSIX (XBD 8.1), in either case.
  private func isVariableName(_ name: String) -> Bool {
    name.utf8.first.map { !(0x30...0x39).contains($0) } == true
      && name.unicodeScalars.allSatisfy {
        $0.isASCII && ($0.properties.isAlphabetic || "0123456789_".unicodeScalars.contains($0))
      }
  }
}
