"""The QNN dialect: operator table, verifier and numpy references that follow the HTP."""
