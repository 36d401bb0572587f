"""Dead letters that an operator delivers to their group once more ("redrives")."""
